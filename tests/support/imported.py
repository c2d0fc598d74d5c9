"""Imported models that tests can call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from onnx import ModelProto
from torch import Tensor

import ltp_pipeline
from ltp_pipeline.errors import LtpError
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.settings.schema import ModelSettings
from ltp_pipeline.stages.import_model.network import CompiledGraph, Network, compile_graph
from ltp_pipeline.system.arrays import StateDict


class Compiled(NamedTuple):
    """Compiled graph and its tensors, whose weights have gradients."""

    forward: CompiledGraph
    state: StateDict

    def __call__(
        self, *inputs: Any, training: bool = False, weights: Mapping[str, Tensor] | None = None
    ) -> Any:
        """Run the graph on inputs by position, with `weights` in place of its own."""
        tensors = dict(zip(self.forward.input_names, inputs, strict=True))
        return self.forward(tensors, {**self.state, **(weights or {})}, training)


class Imported(NamedTuple):
    """Network and its tensors, whose weights have gradients."""

    network: Network
    state: StateDict

    def __call__(self, *inputs: Any, training: bool = False) -> Any:
        """Run the network on inputs by position."""
        return Compiled(self.network.forward, self.state)(*inputs, training=training)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.network, name)


def compile_model(model: ModelProto) -> Compiled:
    """Compile a graph."""
    forward, state = compile_graph(OnnxModel.from_proto(model))
    return Compiled(forward, _with_gradients(forward, state))


def import_network(source: Any, *settings: Any, **more: Any) -> Imported:
    """Import a file or a model."""
    network, state = ltp_pipeline.import_model(source, *settings, **more)
    return Imported(network, _with_gradients(network.forward, state))


def _with_gradients(forward: CompiledGraph, state: StateDict) -> StateDict:
    for name in forward.weight_names:
        state[name].requires_grad_()
    return state


NEVER = ModelSettings(simplify="never")


def get_import_error(model: ModelProto) -> LtpError:
    with pytest.raises(LtpError) as caught:
        import_network(model, settings=NEVER)
    assert caught.value.exit_code in (3, 4)
    assert "\n" not in caught.value.message
    return caught.value
