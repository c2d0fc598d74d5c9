"""Forward passes of several processes that train one network and average their gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ltp_pipeline.stages.import_model import network
from ltp_pipeline.system import distributed

# A forward pass in training mode: from the inputs of a batch, and tensors that replace trained
# ones of the same name, to the outputs.
LiveForward = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], tuple[Any, ...]]
# Warnings of torch about what is intended here, or of no consequence.
_EXPECTED_WARNINGS = (
    "broadcast_buffers",
    "find_unused_parameters=True was specified",
    "Grad strides do not match",
)


def wrap_forward(
    forward: network.CompiledGraph, tensors: Mapping[str, Tensor], parameters: Mapping[str, Tensor]
) -> LiveForward:
    """Return the forward pass over trained tensors, with gradients averaged over all processes.

    Args:
        forward: The network.
        tensors: All tensors of the network.
        parameters: Those of them that are trained.
    """
    if not distributed.is_distributed():
        return lambda inputs, weights: forward(inputs, {**tensors, **weights}, training=True)
    for message in _EXPECTED_WARNINGS:
        warnings.filterwarnings("ignore", f".*{message}")
    # A weight that the phase replaces, or that the graph does not use, gets no gradient itself.
    module = _ForwardModule(forward, tensors, parameters)
    return DistributedDataParallel(module, find_unused_parameters=True, broadcast_buffers=False)


class _ForwardModule(torch.nn.Module):
    """The forward pass as a module, whose gradients torch can average."""

    def __init__(
        self,
        forward: network.CompiledGraph,
        tensors: Mapping[str, Tensor],
        parameters: Mapping[str, Tensor],
    ) -> None:
        super().__init__()
        self._forward = forward
        self._tensors = tensors
        self.trained = torch.nn.ParameterList(parameters.values())

    def forward(
        self, inputs: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[Any, ...]:
        """Run the graph in training mode."""
        return self._forward(inputs, {**self._tensors, **weights}, training=True)
