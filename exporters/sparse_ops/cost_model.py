"""Select the layers that are worth converting to sparse operators, by a model of their cost.

onnxruntime keeps values between Convs in a blocked layout, while sparse operators use the plain
one. Every change of layout costs time, and so does every Add or activation that is no longer fused.
So all Convs of a graph form one region, which is converted as a whole or not at all. Every matrix
product is a region of its own.
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

BLOCK_HEIGHT = 4  # output channels of a block of weights
# Fraction of nonzeros in blocks that are not empty, from which the library stores blocks.
MIN_BLOCK_FILL = 0.75
# Output channels per group. With fewer, packing the input costs more than zeros save.
MIN_GROUP_CHANNELS = 16


@dataclass(frozen=True)
class LayerCost:
    """The time of a sparse layer, as a fraction of the dense layer's."""

    fixed: float
    per_nonzero: float

    def estimate_time(self, fraction: float) -> float:
        """Return the time for a fraction of nonzeros."""
        return self.fixed + self.per_nonzero * fraction


# Costs by instruction set, for single weights and for blocks. They were measured on full networks
# (benchmarks/kernels.py), except those of NEON, which are assumed.
COSTS = {
    "avx512": (LayerCost(0.11, 1.3), LayerCost(0.10, 1.1)),
    "avx2": (LayerCost(0.18, 1.8), LayerCost(0.15, 1.45)),
    "neon": (LayerCost(0.18, 1.8), LayerCost(0.15, 1.45)),
}
UNKNOWN_COST = LayerCost(math.inf, 0.0)  # of other instruction sets
# Outputs that a dense layer computes in the time in which the sparse one prepares its input.
INPUT_COST = 2.6
LANES = {"avx512": 16, "avx2": 8, "neon": 4}  # numbers that are computed at once
FEW_ROWS_FACTOR = 1.4  # slowdown with fewer rows than lanes, in addition to empty lanes
# Cost of a product with one row, which reads every weight once, for all instruction sets.
SINGLE_ROW_COST = LayerCost(0.2, 6.0)


@dataclass
class LayerRegion:
    """Layers that are converted together."""

    nonzeros: dict[str, int] = field(default_factory=dict)  # by name of the layer weight
    elements: int = 0
    dense_cost: float = 0.0  # multiply-adds
    sparse_cost: float = 0.0  # of sparse operators, in dense multiply-adds

    @property
    def ratio(self) -> float:
        """Time of sparse operators as a fraction of the dense time."""
        return self.sparse_cost / self.dense_cost if self.dense_cost else math.inf

    @property
    def sparsity(self) -> float:
        """Fraction of zeros."""
        return 1 - sum(self.nonzeros.values()) / self.elements if self.elements else 0.0


@dataclass(frozen=True)
class SparseLayerSelection:
    """The layer weights to convert, and why others are not converted."""

    weight_names: tuple[str, ...]
    skipped: Mapping[str, str]  # reasons by name


def select_layers(
    model: OnnxModel,
    weight_names: Collection[str],
    sample: Weights,
    instruction_set: str,
    min_sparsity: float | None = None,
) -> SparseLayerSelection:
    """Select the layers to convert to sparse operators.

    Args:
        model: The deploy graph.
        weight_names: Names of the layer weights.
        sample: Inputs by name, for their shapes.
        instruction_set: Instruction set that the library uses.
        min_sparsity: If set, select all regions with at least this sparsity, whatever they cost.
    """
    _, chains = convert_to_sparse_ops(model, weight_names)
    eligible = {chain.weight_name for chain in chains}
    skipped: dict[str, str] = {}
    for name in weight_names:
        if name not in eligible:
            skipped[name] = _explain_ineligible(name, model)
    selected: list[str] = []
    for region in _build_regions(model, chains, sample, instruction_set, skipped):
        reason = _explain_skipping(region, instruction_set, min_sparsity)
        if reason is None:
            selected.extend(region.nonzeros)
        else:
            skipped |= dict.fromkeys(region.nonzeros, reason)
    in_order = {name: skipped[name] for name in weight_names if name in skipped}
    return SparseLayerSelection(tuple(selected), in_order)


def _explain_skipping(
    region: LayerRegion, instruction_set: str, min_sparsity: float | None
) -> str | None:
    """Return why a region is not worth converting, or None if it is."""
    zeros = f"{region.sparsity:.1%} of the weights are zero"
    if min_sparsity is not None:
        return None if region.sparsity >= min_sparsity else zeros
    if instruction_set not in COSTS:
        return f"the library has no fast instructions for this processor ({instruction_set})"
    if region.ratio < 1:
        return None
    return f"would take {region.ratio:.2f} of the dense time, {zeros}"


def _build_regions(
    model: OnnxModel,
    chains: Collection[ConvertedChain],
    sample: Weights,
    instruction_set: str,
    skipped: dict[str, str],
) -> list[LayerRegion]:
    """Return the regions of a graph; `skipped` gets the reasons of weights that are in none."""
    shapes = infer_shapes(_set_input_shapes(model, sample).proto)
    regions = {"": LayerRegion()}  # the region of Convs, then those of products by weight
    for chain in chains:
        node = chain.nodes[0]
        name = chain.weight_name
        weight = model.get_array(name)
        rows = _count_rows(node, name, shapes)
        key = name
        multiply_adds: float = weight.size
        if is_standard(node, "Conv"):
            groups = get_attribute(node, "group", 1)
            if groups > 1 and len(weight) < MIN_GROUP_CHANNELS * groups:
                skipped[name] = (
                    f"has groups of fewer than {MIN_GROUP_CHANNELS} output channels,"
                    f" at {format_node(node)}"
                )
                continue
            key = ""
            if math.isfinite(rows):
                multiply_adds *= rows
        region = regions.setdefault(key, LayerRegion())
        if name not in region.nonzeros:
            region.nonzeros[name] = int(np.count_nonzero(weight))
            region.elements += weight.size
        region.dense_cost += multiply_adds
        time = _estimate_time(node, name, weight, rows, instruction_set)
        region.sparse_cost += multiply_adds * time
    return list(regions.values())


def _estimate_time(
    node: NodeProto, weight_name: str, weight: Array, rows: float, instruction_set: str
) -> float:
    """Estimate the time of a sparse layer as a fraction of the dense layer's."""
    single_cost, block_cost = COSTS.get(instruction_set, (UNKNOWN_COST, UNKNOWN_COST))
    axis = 0 if node.input[0] == weight_name else get_output_axis(node)
    fraction = np.count_nonzero(weight) / max(weight.size, 1)
    block_fraction = compute_block_fraction(weight, axis)
    time: float = block_cost.estimate_time(block_fraction)
    if fraction < MIN_BLOCK_FILL * block_fraction:
        time = single_cost.estimate_time(fraction)
    groups: int = get_attribute(node, "group", 1)
    time += INPUT_COST * groups / max(weight.shape[axis], 1)
    lanes = LANES.get(instruction_set, 1)
    if rows >= lanes:
        return time
    few_rows_time = time * FEW_ROWS_FACTOR * lanes / rows
    return min(few_rows_time, SINGLE_ROW_COST.estimate_time(fraction) * rows)


def _count_rows(node: NodeProto, weight_name: str, shapes: Shapes) -> float:
    """Return the number of vectors that a weight is multiplied by, infinite if it is not known."""
    unknown = (None,)
    if is_standard(node, "Conv"):
        sizes = (shapes.get(node.output[0]) or unknown)[2:] or unknown
    elif node.input[0] == weight_name:
        shape = shapes.get(node.input[1]) or (None, None)
        sizes = shape[-1:] if len(shape) > 1 else (1,)  # a batch is multiplied matrix by matrix
    else:
        sizes = (shapes.get(node.input[0]) or (None, None))[:-1]
    known_sizes = [size for size in sizes if isinstance(size, int)]
    return max(math.prod(known_sizes), 1) if len(known_sizes) == len(sizes) else math.inf


def compute_block_fraction(weight: Array, axis: int) -> float:
    """Return the fraction of weights in blocks of four output channels that are not empty."""
    if not weight.size:
        return 0.0
    rows = np.moveaxis(weight != 0, axis, 0).reshape(weight.shape[axis], -1)
    starts = np.arange(0, len(rows), BLOCK_HEIGHT)
    heights = np.minimum(BLOCK_HEIGHT, len(rows) - starts)  # the last block may be lower
    is_filled = np.logical_or.reduceat(rows, starts, axis=0)
    return float((heights @ is_filled).sum() / rows.size)


def _set_input_shapes(model: OnnxModel, sample: Weights) -> OnnxModel:
    """Return the model with inputs of the shapes of a sample."""
    proto = copy_proto(model.proto)
    for value in proto.graph.input:
        if value.name in sample:
            shape = value.type.tensor_type.shape
            del shape.dim[:]
            for size in sample[value.name].shape:
                shape.dim.add().dim_value = size
    del proto.graph.value_info[:]
    return OnnxModel(proto, model.weights)


def _explain_ineligible(name: str, model: OnnxModel) -> str:
    """Return why a layer weight cannot be converted."""
    tensor = model.tensors.get(name)
    if tensor is None:
        return "is computed"
    if tensor.data_type in (TensorProto.INT8, TensorProto.UINT8):
        return "is already quantized"
    if tensor.data_type != TensorProto.FLOAT:
        return f"has type {get_type_name(tensor.data_type)}"
    uses = GraphView(model.graph).consumers.get(name, [])
    if not uses:
        return "is not read by any node"
    return f"is read by {format_node(uses[0].node)}, which has no sparse operator"
