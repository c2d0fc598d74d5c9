"""Train layers in front of BatchNormalization in units that do not depend on the file's scaling.

BatchNormalization removes the scale of each output channel of the layer before it. So one function
can be stored with weights of any size, and exporters do so. Thresholds and the steps of an
optimizer depend on that size. In training, each output channel therefore has the root mean square
√(2 / inputs), with which He initialization begins. Files keep the scale of the original.

With the factor f of a channel, bias b, running mean m, running variance v and scale γ:

    W' = f W,  b' = f b,  m' = f m,  v' = f² v,  γ' = γ √((f² v + ε) / (f² (v + ε)))
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ltp_pipeline.graph.nodes import get_attribute, is_standard
from ltp_pipeline.graph.readers import get_output_axis
from ltp_pipeline.graph.view import GraphView
from ltp_pipeline.stages.import_model.network import ChannelUnits, Network, RestoredNorm
from ltp_pipeline.stages.import_model.restore_batch_norm import EPSILON
from ltp_pipeline.system.arrays import StateDict

_LINEAR_OPERATORS = ("Conv", "Gemm", "MatMul")
_DEFAULT_EPSILON = 1e-5  # of BatchNormalization


def run(network: Network, state: StateDict) -> tuple[Network, StateDict]:
    """Convert a network to the units of training.

    Args:
        network: The network.
        state: Its tensors in the units of the file.

    Returns:
        The network with its units, and the tensors in them, which compute the same function.
    """
    restored = (_units_of_restored_norm(norm, state) for norm in network.restored_norms)
    units = (*_iter_stored_units(network, state), *restored)
    return replace(network, units=units), to_units(units, state)


def to_units(units: Sequence[ChannelUnits], state: StateDict) -> StateDict:
    """Return tensors in the units of training."""
    converted = dict(state)
    for unit in units:
        _scale_layer(unit, unit.factors, converted)
    return converted


def from_units(units: Sequence[ChannelUnits], state: StateDict) -> StateDict:
    """Return tensors in the units of the file."""
    converted = dict(state)
    for unit in units:
        _scale_layer(unit, unit.factors.reciprocal(), converted)
    return converted


def _scale_layer(unit: ChannelUnits, factors: Tensor, state: StateDict) -> None:
    """Multiply the output channels of a layer by factors, and change its BatchNormalization."""
    weight = state[unit.layer_weight].detach()
    shape = [1] * weight.dim()
    shape[unit.axis] = -1
    factors = factors.to(weight)
    state[unit.layer_weight] = weight * factors.view(shape)
    if unit.bias is not None:
        state[unit.bias] = state[unit.bias].detach() * factors
    variance = state[unit.variance].detach()
    squares = factors.square()
    state[unit.mean] = state[unit.mean].detach() * factors
    state[unit.variance] = variance * squares
    ratio = (variance * squares + unit.epsilon) / (squares * (variance + unit.epsilon))
    state[unit.scale] = state[unit.scale].detach() * ratio.sqrt()


def _iter_stored_units(network: Network, state: StateDict) -> Iterator[ChannelUnits]:
    """Yield the units of the layers whose BatchNormalization is stored in the file."""
    graph = network.file.model.graph
    view = GraphView(graph)
    layers = {layer.name for layer in network.layer_weights}
    for norm in graph.node:
        if not is_standard(norm, "BatchNormalization"):
            continue
        node = view.producers.get(norm.input[0])
        if node is None or not is_standard(node, *_LINEAR_OPERATORS):
            continue
        weight, *biases = node.input[1:]
        scale, _, mean, variance = norm.input[1:5]
        own = [weight, *filter(None, biases), scale, mean, variance]
        is_own = all(name in state and view.read_counts[name] == 1 for name in own)
        if weight not in layers or not is_own or view.read_counts[norm.input[0]] != 1:
            continue
        axis = get_output_axis(node) % state[weight].dim()
        if state[weight].shape[axis] != len(state[variance]):
            continue
        yield ChannelUnits(
            layer_weight=weight,
            bias=biases[0] if biases and biases[0] else None,
            scale=scale,
            mean=mean,
            variance=variance,
            axis=axis,
            epsilon=get_attribute(norm, "epsilon", _DEFAULT_EPSILON),
            factors=_find_factors(state[weight], axis),
        )


def _units_of_restored_norm(norm: RestoredNorm, state: StateDict) -> ChannelUnits:
    """Return the units of a layer whose BatchNormalization only the network in training has."""
    return ChannelUnits(
        layer_weight=norm.layer_weight,
        bias=None,  # the norm has taken it over
        scale=norm.scale,
        mean=norm.mean,
        variance=norm.variance,
        axis=0,
        epsilon=EPSILON,
        factors=_find_factors(state[norm.layer_weight], 0),
    )


def _find_factors(weight: Tensor, axis: int) -> Tensor:
    """Return √(2 / inputs) / root mean square of each output channel; 1 for a channel of zeros."""
    rows = weight.detach().movedim(axis, 0).flatten(1)
    size = rows.square().mean(1).sqrt()
    target = math.sqrt(2 / rows.shape[1])
    return torch.where(size > 0, target / size, torch.ones_like(size))
