"""Which layers are worth turning over, by a model of what sparse kernels cost beside dense ones.

onnxruntime keeps the values between Convs in a blocked layout, the sparse kernels in the plain one; each change of
layout costs time, and so does every Add and activation that is no longer fused. So all Convs of a graph are one region,
which is turned over as a whole or not at all. Every matrix product is a region of its own.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto, TensorProto

from ltp_pipeline.exporters.sparse_ops.replace import (
    ConvertedChain,
    Shapes,
    convert_to_sparse_ops,
    infer_shapes,
)
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import format_node, get_attribute, is_standard
from ltp_pipeline.graph.readers import get_output_axis
from ltp_pipeline.graph.tensors import Weights, get_type_name
from ltp_pipeline.graph.view import GraphView
from ltp_pipeline.system.arrays import Array

BLOCK_HEIGHT = 4  # output channels that a block of weights has
MIN_BLOCK_FILL = 0.75  # share of nonzeros in blocks that are not empty, from which the library takes them as blocks
MIN_GROUP_CHANNELS = 16  # output channels; with fewer, packing the input costs more than is saved


@dataclass(frozen=True)
class LayerCost:
    """The time of a layer as a share of the dense one's: a fixed part, and one that grows with the nonzeros."""

    fixed: float
    per_nonzero: float

    def estimate_time(self, share: float) -> float:
        """The time with this share of nonzeros."""
        return self.fixed + self.per_nonzero * share


# Measured on whole networks, for single weights and for blocks; docs/kernels.md has where. NEON's are guessed.
COSTS = {
    "avx512": (LayerCost(0.11, 1.3), LayerCost(0.10, 1.1)),
    "avx2": (LayerCost(0.18, 1.8), LayerCost(0.15, 1.45)),
    "neon": (LayerCost(0.18, 1.8), LayerCost(0.15, 1.45)),
}
UNKNOWN_COST = LayerCost(math.inf, 0.0)  # of instructions that no cost is known for
INPUT_COST = (
    2.6  # outputs that a dense layer computes in the time in which ours makes its input ready
)
LANES = {"avx512": 16, "avx2": 8, "neon": 4}  # numbers that are computed at once
FEW_ROWS_FACTOR = 1.4  # times as long, with fewer rows than lanes, as lanes that stay empty explain
SINGLE_ROW_COST = LayerCost(
    0.2, 6.0
)  # of a product with one row, which reads every weight once, whatever the instructions


@dataclass
class LayerRegion:
    """Layers that are turned over together."""

    nonzeros: dict[str, int] = field(default_factory=dict)  # nonzeros
    elements: int = 0
    dense_cost: float = 0.0  # multiply-adds
    sparse_cost: float = 0.0  # what they cost, in dense multiply-adds

    @property
    def ratio(self) -> float:
        """The time on sparse kernels / dense."""
        return self.sparse_cost / self.dense_cost if self.dense_cost else math.inf

    @property
    def sparsity(self) -> float:
        """Share of zeros."""
        return 1 - sum(self.nonzeros.values()) / self.elements if self.elements else 0.0


@dataclass(frozen=True)
class SparseLayerSelection:
    """The kernels to turn over, and why the others are left."""

    weight_names: tuple[str, ...]
    skipped: Mapping[str, str]


def select_layers(
    model: OnnxModel,
    weight_names: Collection[str],
    sample: Weights,
    instruction_set: str,
    accelerate_min_sparsity: float | None = None,
) -> SparseLayerSelection:
    """Choose regions for the instructions of a `path`, on inputs shaped like the sample.

    With `accelerate_min_sparsity`, these are the regions that have at least this sparsity, whatever they cost here.
    """
    _, eligible = convert_to_sparse_ops(model, weight_names)
    left = {
        name: _explain_ineligible(name, model)
        for name in weight_names
        if name not in {turned.weight_name for turned in eligible}
    }
    regions = _build_regions(model, eligible, sample, instruction_set, left)
    chosen = list[str]()
    for region in regions:
        why = _explain_skipping(region, instruction_set, accelerate_min_sparsity)
        if why is None:
            chosen.extend(region.nonzeros)
        else:
            left |= dict.fromkeys(region.nonzeros, why)
    return SparseLayerSelection(
        tuple(chosen), {name: left[name] for name in weight_names if name in left}
    )


def _explain_skipping(
    region: LayerRegion, path: str, accelerate_min_sparsity: float | None
) -> str | None:
    """Why a region is not worth turning over; None where it is."""
    zeros = f"{region.sparsity:.1%} of the weights are zero"
    if accelerate_min_sparsity is not None:
        return None if region.sparsity >= accelerate_min_sparsity else zeros
    if path not in COSTS:
        return f"the library has no fast instructions for this processor ({path})"
    return None if region.ratio < 1 else f"would take {region.ratio:.2f} of the dense time, {zeros}"


def _build_regions(
    model: OnnxModel,
    eligible: Collection[ConvertedChain],
    sample: Weights,
    path: str,
    left: dict[str, str],
) -> list[LayerRegion]:
    """The regions of a graph; layers that are in none are added to `left`."""
    shapes = infer_shapes(_set_input_shapes(model, sample).proto)
    convs, regions = LayerRegion(), dict[str, LayerRegion]()
    for turned in eligible:
        node = turned.nodes[0]
        weight, rows = (
            model.get_array(turned.weight_name),
            _count_rows(node, turned.weight_name, shapes),
        )
        if is_standard(node, "Conv"):
            if (groups := get_attribute(node, "group", 1)) > 1 and len(
                weight
            ) < MIN_GROUP_CHANNELS * groups:
                left[turned.weight_name] = (
                    f"has groups of fewer than {MIN_GROUP_CHANNELS} output channels, at {format_node(node)}"
                )
                continue
            region, times = convs, rows if math.isfinite(rows) else 1
        else:
            region, times = regions.setdefault(turned.weight_name, LayerRegion()), 1
        if turned.weight_name not in region.nonzeros:
            region.nonzeros[turned.weight_name] = int(np.count_nonzero(weight))
            region.elements += weight.size
        region.dense_cost += weight.size * times
        region.sparse_cost += (
            weight.size * times * _estimate_time(node, turned.weight_name, weight, rows, path)
        )
    return [*([convs] if convs.nonzeros else []), *regions.values()]


def _estimate_time(
    node: NodeProto, weight_name: str, weight: Array, rows: float, path: str
) -> float:
    """The time of a layer on sparse kernels / dense."""
    single, blocks = COSTS.get(path, (UNKNOWN_COST, UNKNOWN_COST))
    axis = 0 if node.input[0] == weight_name else get_output_axis(node)
    share = np.count_nonzero(weight) / max(weight.size, 1)
    filled = compute_block_fraction(weight, axis)
    time: float = (
        single.estimate_time(share)
        if share < MIN_BLOCK_FILL * filled
        else blocks.estimate_time(filled)
    )
    groups: int = get_attribute(node, "group", 1)
    time += INPUT_COST * groups / max(weight.shape[axis], 1)
    lanes = LANES.get(path, 1)
    return (
        time
        if rows >= lanes
        else min(time * FEW_ROWS_FACTOR * lanes / rows, SINGLE_ROW_COST.estimate_time(share) * rows)
    )


def _count_rows(node: NodeProto, weight_name: str, shapes: Shapes) -> float:
    """How many vectors a kernel is multiplied by, rows of a matrix or pixels; infinite where that is not known."""
    if is_standard(node, "Conv"):
        others = (shapes.get(node.output[0]) or (None,))[2:] or (None,)
    elif node.input[0] == weight_name:
        shape = shapes.get(node.input[1]) or (None, None)
        others = (
            shape[-1:] if len(shape) > 1 else (1,)
        )  # matrices are multiplied one after the other
    else:
        others = (shapes.get(node.input[0]) or (None, None))[:-1]
    known = [n for n in others if isinstance(n, int)]
    return max(math.prod(known), 1) if len(known) == len(others) else math.inf


def compute_block_fraction(weight: Array, axis: int) -> float:
    """The share of weights in blocks of four neighbouring output channels that are not empty."""
    if not weight.size:
        return 0.0
    rows = np.moveaxis(weight != 0, axis, 0).reshape(weight.shape[axis], -1)
    starts = np.arange(0, len(rows), BLOCK_HEIGHT)
    heights = np.minimum(BLOCK_HEIGHT, len(rows) - starts)  # the last one may be lower
    return float((heights @ np.logical_or.reduceat(rows, starts, axis=0)).sum() / rows.size)


def _set_input_shapes(model: OnnxModel, sample: Weights) -> OnnxModel:
    """The model with the shapes of a sample for its inputs."""
    proto = copy_proto(model.proto)
    for value in proto.graph.input:
        if value.name in sample:
            shape = value.type.tensor_type.shape
            del shape.dim[:]
            for n in sample[value.name].shape:
                shape.dim.add().dim_value = n
    del proto.graph.value_info[:]
    return OnnxModel(proto, model.weights)


def _explain_ineligible(name: str, model: OnnxModel) -> str:
    """Why a kernel cannot be turned over."""
    tensor = model.tensors.get(name)
    if tensor is None:
        return "is computed"
    if tensor.data_type in (TensorProto.INT8, TensorProto.UINT8):
        return "is quantised already"
    if tensor.data_type != TensorProto.FLOAT:
        return f"is of type {get_type_name(tensor.data_type)}"
    users = GraphView(model.graph).consumers.get(name, [])
    return (
        f"is read by {format_node(users[0].node)}, which the kernels do not compute"
        if users
        else "is read by nothing"
    )
