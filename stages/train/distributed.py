"""Several processes that train one network: each computes its share of a batch, gradients are averaged."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ltp_pipeline.stages.import_model import network
from ltp_pipeline.system import distributed

# From the inputs of a batch, with other tensors in place of live ones, to the outputs, in training mode
LiveForward = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], tuple[Any, ...]]


def wrap_forward(
    forward: network.Forward, tensors: Mapping[str, Tensor], parameters: Mapping[str, Tensor]
) -> LiveForward:
    """The network over its live tensors, as all processes train it together."""
    if not distributed.is_distributed():
        return lambda inputs, weights: forward(inputs, {**tensors, **weights}, training=True)
    for told in (
        "broadcast_buffers",
        "find_unused_parameters=True was specified",
        "Grad strides do not match",
    ):
        warnings.filterwarnings("ignore", f".*{told}")  # meant, or of no consequence
    # what a phase replaces, or the graph does not use, gets no gradient itself
    module = _ForwardModule(forward, tensors, parameters)
    return DistributedDataParallel(module, find_unused_parameters=True, broadcast_buffers=False)


class _ForwardModule(torch.nn.Module):
    """The form in which torch averages gradients."""

    def __init__(
        self,
        forward: network.Forward,
        tensors: Mapping[str, Tensor],
        parameters: Mapping[str, Tensor],
    ) -> None:
        super().__init__()
        self._run, self._live = forward, tensors
        self.trained = torch.nn.ParameterList(parameters.values())

    def forward(
        self, inputs: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[Any, ...]:
        """Run the graph in training mode."""
        return self._run(inputs, {**self._live, **weights}, training=True)
