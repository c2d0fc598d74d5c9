"""Find the layer weights of a model: the tensors that pruning works on.

A layer weight is a stored tensor that a Conv, ConvTranspose, Gemm, MatMul, LSTM, GRU, RNN, or one
of onnxruntime's fused forms multiplies data by, possibly through operators that only move its
elements. Other float tensors, such as biases and embedding tables, are grouped by the operators
that read them, so that a user sees what is left out.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from onnx import GraphProto, NodeProto

from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import (
    LOOKUP_OPERATORS,
    VIEW_OPERATORS,
    format_nodes,
    get_attribute,
    get_subgraphs,
    is_standard,
)
from ltp_pipeline.graph.positions import find_frequencies
from ltp_pipeline.graph.readers import TensorReader, TensorReaders, find_readers, get_output_axis
from ltp_pipeline.graph.tensors import (
    FLOAT_TYPES,
    collect_stored_tensors,
    is_attention_mask,
    iter_stored_tensors,
)
from ltp_pipeline.graph.view import GraphView
from ltp_pipeline.graph.weights import find_integer_weights, iter_stored_float_weights
from ltp_pipeline.system.arrays import Array

BLOCK_SIZE = 4  # adjacent output channels whose weights at one position form a 4x1 block
# A model is warned about if its layer weights are a smaller fraction of its float weights.
MIN_LAYER_FRACTION = 0.9

# Operators whose output does not depend on the scale of their input
_NORMALIZATIONS = (
    "BatchNormalization",
    "GroupNormalization",
    "InstanceNormalization",
    "LayerNormalization",
    "LpNormalization",
    "MeanVarianceNormalization",
    "RMSNormalization",
)
# Operators whose output has the scale of their weight, unlike gates and Softmax
_LINEAR_OPERATORS = (
    *("Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum"),
    *("FusedConv", "FusedGemm", "FusedMatMul"),
)
_RECURRENT_OPERATORS = ("RNN", "GRU", "LSTM")
_JOINING_OPERATORS = ("Concat", "Expand")
_BIASED_OPERATORS = (
    *_LINEAR_OPERATORS,
    *_RECURRENT_OPERATORS,
    *("Attention", "BiasGelu", "FastGelu"),
)


@dataclass(frozen=True)
class LayerWeight:
    """The weight of a layer, or one of the two weights W and R of a recurrent layer.

    Attributes:
        name: Name of the tensor.
        op: Operator of the layer.
        shape: Shape of the tensor.
        reason: Why the tensor cannot be pruned; None if it can.
        block_axis: Axis of the output channels if these can be pruned in blocks, else None.
    """

    name: str
    op: str
    shape: tuple[int, ...]
    reason: str | None = None
    block_axis: int | None = None

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_prunable(self) -> bool:
        """True if pruning may change the tensor."""
        return self.reason is None


@dataclass(frozen=True)
class OtherWeights:
    """Float weights outside layer weights that one operator reads in one role.

    Attributes:
        operator: Operator that reads the weights; empty if none does.
        role: What the weights are to the operator, in words.
        num_tensors: Number of tensors.
        elements: Number of elements of all tensors.
        largest: Name of the largest tensor.
    """

    operator: str
    role: str
    num_tensors: int
    elements: int
    largest: str


def find_layer_weights(
    model: OnnxModel,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    readers: TensorReaders | None = None,
) -> list[LayerWeight]:
    """Return the layer weights of a model in graph order, prunable or not.

    Args:
        model: The model, its functions inlined.
        include: Shell-style patterns of names to prune; empty for all names.
        exclude: Shell-style patterns of names not to prune.
        readers: Readers of the stored tensors, if they are known already.
    """
    readers = readers or find_readers(model.graph)
    tensors = {name: t for name, t in iter_stored_tensors(model.graph) if name in readers}
    integer_weights, _ = find_integer_weights(model.graph)
    frequencies = find_frequencies(model.graph)
    weights: list[LayerWeight] = []
    for name, uses in readers.items():
        tensor = tensors[name]
        operator = next((use.node.op_type for use in uses if use.is_weight), None)
        if operator is None or name in frequencies or 0 in tensor.dims:
            continue
        if tensor.data_type not in FLOAT_TYPES and name not in integer_weights:
            continue
        if _is_formula(model.get_array(name, tensor), uses):
            continue
        shape = tuple(tensor.dims)
        reason = _find_other_use(uses) or _find_exclusion(name, include, exclude)
        weights.append(
            LayerWeight(name, operator, shape, reason, _get_block_axis(name, shape, uses))
        )
    return weights


def get_block_axes(layer_weights: Collection[LayerWeight], block: str | None) -> dict[str, int]:
    """Return the axis of the output channels by name, for each weight that is pruned in blocks.

    Args:
        layer_weights: All layer weights.
        block: Shape of a block as in `method.block`; None prunes single weights everywhere.
    """
    axes: dict[str, int] = {}
    for weight in layer_weights:
        if block is not None and weight.is_prunable and weight.block_axis is not None:
            axes[weight.name] = weight.block_axis
    return axes


def find_other_weights(
    model: OnnxModel,
    layer_weights: Collection[LayerWeight],
    readers: TensorReaders | None = None,
) -> list[OtherWeights]:
    """Return the float weights outside layer weights, in groups, the largest group first.

    The functions of the model are inlined. Pass readers of its tensors if they are known already.
    """
    readers = readers or find_readers(model.graph)
    layer_names = {weight.name for weight in layer_weights}
    groups: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for name, counts in iter_stored_float_weights(model):
        if name not in layer_names:
            key = ("", "not read by any operator")
            if name in readers:
                key = _describe_role(readers[name][0])
            groups[key].append((counts.elements, name))
    others: list[OtherWeights] = []
    for (operator, role), members in groups.items():
        elements = sum(size for size, _ in members)
        _, largest = max(members, key=lambda member: member[0])
        others.append(OtherWeights(operator, role, len(members), elements, largest))
    return sorted(others, key=lambda group: -group.elements)


def describe_other_weights(
    layer_weights: Collection[LayerWeight], others: Collection[OtherWeights]
) -> str | None:
    """Return a sentence about the weights outside layer weights if these are many, else None."""
    in_layers = sum(weight.elements for weight in layer_weights)
    total = in_layers + sum(group.elements for group in others)
    if in_layers >= MIN_LAYER_FRACTION * total:
        return None
    counts: Counter[str] = Counter()
    for group in others:
        counts[group.operator or "others"] += group.elements
    largest = ", ".join(f"{count:,} of {operator}" for operator, count in counts.most_common(3))
    fraction = in_layers / total
    return f"layer weights are {fraction:.1%} of the weights; most of the others are {largest}"


def find_output_layers(
    graph: GraphProto, outputs: Collection[str], layer_weights: Collection[LayerWeight]
) -> set[str]:
    """Return the names of the layer weights that outputs are computed with last.

    No other layer weight lies between them and one of the outputs.
    """
    readers = find_readers(graph)
    weights_by_output: dict[str, set[str]] = defaultdict(set)
    for weight in layer_weights:
        for use in readers.get(weight.name, ()):
            for output in filter(None, use.node.output):
                weights_by_output[output].add(weight.name)
    producers = GraphView(graph).producers
    output_layers: set[str] = set()
    waiting = list(outputs)
    seen: set[str] = set()
    while waiting:
        value = waiting.pop()
        if value in weights_by_output:
            output_layers |= weights_by_output[value]
        elif value in producers and value not in seen:
            waiting.extend(producers[value].input)
        seen.add(value)
    return output_layers


def find_normalized_weights(graph: GraphProto, layer_weights: Collection[LayerWeight]) -> set[str]:
    """Return the names of the layer weights whose scale does not matter.

    These are weights of linear layers that only normalization layers read, possibly behind a
    bias.
    """
    stored = collect_stored_tensors(graph)
    # For each value: True if all its readers are, or lead only to, normalization layers.
    is_normalized = {output.name: False for output in graph.output}
    for node in reversed(graph.node):
        normalizes = is_standard(node, *_NORMALIZATIONS)
        leads_on = bool(node.output) and is_normalized.get(node.output[0], False)
        for value in node.input:
            passes = normalizes or (leads_on and _keeps_scale(node, value, stored))
            is_normalized[value] = is_normalized.get(value, True) and passes
        for nested in get_subgraphs(node):
            for inner in nested.node:
                is_normalized |= dict.fromkeys(inner.input, False)
    names = {weight.name for weight in layer_weights}
    normalized: set[str] = set()
    for name, uses in find_readers(graph).items():
        nodes = [use.node for use in uses]
        is_linear = all(node.op_type in _LINEAR_OPERATORS for node in nodes)
        if name in names and is_linear and all(is_normalized.get(n.output[0]) for n in nodes):
            normalized.add(name)
    return normalized


def _keeps_scale(node: NodeProto, value: str, stored: Collection[str]) -> bool:
    """Return True if a node passes a value on, or adds a stored tensor to it."""
    if is_standard(node, *VIEW_OPERATORS):
        return bool(node.input[0] == value)
    is_sum = is_standard(node, "Add")
    return is_sum and all(name == value or name in stored for name in node.input)


def _describe_role(use: TensorReader) -> tuple[str, str]:
    """Return the operator that reads a tensor and what the tensor is to it, in words."""
    operator = use.node.op_type
    slot = use.slot
    if operator in LOOKUP_OPERATORS or (operator == "EmbedLayerNormalization" and slot < 5):
        return operator, "tables whose rows are looked up"
    if operator.endswith("Normalization"):
        return operator, "scales, shifts and statistics of normalization layers"
    if operator in ("Mul", "Div"):
        return operator, "factors"
    if operator in ("Add", "Sub", "Sum"):
        return operator, "summands, such as biases and tables of positions"
    if operator in _JOINING_OPERATORS:
        return operator, "parts joined to the data, such as class tokens"
    if operator in _RECURRENT_OPERATORS and slot > 3:
        return operator, "initial states and peepholes"
    if operator in _LINEAR_OPERATORS and slot == 0:
        return operator, "tables that another weight multiplies"
    if operator in _BIASED_OPERATORS:
        return operator, "biases"
    return operator, "not a layer weight"


def _is_formula(array: Array, uses: Sequence[TensorReader]) -> bool:
    """Return True for a lone number on the left of a product, or a mask: nothing was learned."""
    if array.size == 1 and all(use.slot == 0 for use in uses):
        return True
    return array.dtype.kind != "i" and is_attention_mask(array)


def _get_block_axis(name: str, shape: tuple[int, ...], uses: Sequence[TensorReader]) -> int | None:
    """Return the axis of the output channels of a layer weight.

    It is None if its length is not a multiple of the block size, if another operator than a plain
    layer reads the weight, or if the nodes that read it do not agree on the axis.
    """
    axes: set[int] = set()
    for node, slot, _ in uses:
        is_plain = is_standard(node, "Conv", "Gemm", "MatMul") and node.input[slot] == name
        if not is_plain or len(shape) < 2:
            return None
        axis = get_output_axis(node, slot) % len(shape)
        groups = max(get_attribute(node, "group", 1), 1)
        if shape[axis] % (BLOCK_SIZE * groups):
            return None
        axes.add(axis)
    if len(axes) != 1:
        return None
    return axes.pop()


def _find_other_use(uses: Sequence[TensorReader]) -> str | None:
    """Return why a weight that is also read as something else cannot be pruned."""
    nodes = [use.node for use in uses if not use.is_weight]
    if nodes:
        return f"also read by {format_nodes(nodes)}"
    return None


def _find_exclusion(name: str, include: Sequence[str], exclude: Sequence[str]) -> str | None:
    """Return which pattern of the settings excludes a weight, in words, else None."""
    for pattern in exclude:
        if fnmatchcase(name, pattern):
            return f"excluded by {pattern!r}"
    if include and not any(fnmatchcase(name, pattern) for pattern in include):
        return "matches no --include pattern"
    return None
