"""Count how often each layer weight is multiplied in one sample: its cost in multiply-adds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ltp_pipeline.graph.readers import TensorReader, find_readers
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.stages.import_model.network import Network, compile_observer

_PRODUCTS = ("Gemm", "MatMul", "FusedGemm", "FusedMatMul")


class _ObservedValue(NamedTuple):
    """A value by whose size the uses of a weight are counted.

    Attributes:
        name: Name of the value, an input or output of the layer.
        axis: Axis of its channels. A weight is used once at each of the other positions.
    """

    name: str
    axis: int


def count_uses(
    network: Network, state: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
) -> dict[str, int]:
    """Run a batch and count how often a weight of each layer is multiplied in one sample.

    A weight of a convolution is used at each position of its output, a weight of a recurrent layer
    in each step, and a weight of a fully connected layer once. Uses by several nodes add up.

    Args:
        network: The network.
        state: Its tensors by name.
        inputs: Inputs of a batch by name.

    Returns:
        Uses by name of the layer weight, at least 1, in graph order.
    """
    model, _ = flatten_model(network.file.model)
    readers = find_readers(model.graph)
    observed = {
        layer.name: [_find_observed(use) for use in readers[layer.name] if use.is_weight]
        for layer in network.layer_weights
    }
    top_level = {name for node in model.graph.node for name in (*node.input, *node.output)}
    names = sorted({v.name for values in observed.values() for v in values} & top_level)
    observer = compile_observer(model, names)
    with torch.inference_mode():
        outputs = observer(inputs, state)[-len(names) :]
    shapes = {name: tuple(value.shape) for name, value in zip(names, outputs, strict=True)}
    samples = len(next(iter(inputs.values())))
    counts: dict[str, int] = {}
    for layer in network.layer_weights:
        uses = 0.0
        for value in observed[layer.name]:
            if value.name in shapes:
                uses += _count_positions(shapes[value.name], value.axis, layer.shape) / samples
        counts[layer.name] = max(round(uses), 1)
    return counts


def count_multiply_adds(uses: Mapping[str, int], nonzeros: Mapping[str, int]) -> int:
    """Return the multiply-adds of one sample: the uses of all nonzeros."""
    return sum(uses[name] * count for name, count in nonzeros.items())


def _find_observed(use: TensorReader) -> _ObservedValue:
    """Return the value that tells how often a node uses its weight."""
    node = use.node
    if node.op_type in ("Conv", "FusedConv"):
        return _ObservedValue(node.output[0], 1)
    if node.op_type == "ConvTranspose":
        return _ObservedValue(node.input[0], 1)
    if node.op_type in _PRODUCTS:
        return _ObservedValue(node.output[0], -1 if use.slot == 1 else -2)
    return _ObservedValue(node.input[0], -1)  # recurrent layers and attention


def _count_positions(shape: Sequence[int], axis: int, weight_shape: Sequence[int]) -> float:
    """Return the number of positions of a value beside its channels.

    Each matrix of a stack of weights is used at its own positions.
    """
    if len(shape) < abs(axis):  # a product with a vector has no axis for it
        return 1.0
    stacked = math.prod(weight_shape[:-2]) if axis < 0 and len(weight_shape) > 2 else 1
    return math.prod(shape) / max(shape[axis], 1) / stacked
