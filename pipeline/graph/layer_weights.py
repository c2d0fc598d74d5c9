"""Which tensors are kernels: the weights of Conv, ConvTranspose, Gemm, MatMul, LSTM, GRU, RNN and of fused forms.

Also what keeps a kernel from pruning, and what the other weights are.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from onnx import GraphProto, NodeProto, TensorProto

from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import (
    LOOKUP_OPERATORS,
    VIEW_OPERATORS,
    format_node,
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
    to_array,
)
from ltp_pipeline.graph.weights import find_integer_weights, iter_stored_float_weights
from ltp_pipeline.system.arrays import Array

BLOCK_SIZE = 4  # neighbouring output channels whose weights at one position are pruned together, where that is asked for
MIN_LAYER_FRACTION = (
    0.9  # a model whose kernels hold a smaller share of its float weights is warned about
)

# What these give does not depend on the scale of what they read.
_NORMS = (
    "BatchNormalization",
    "GroupNormalization",
    "InstanceNormalization",
    "LayerNormalization",
    "LpNormalization",
    "MeanVarianceNormalization",
    "RMSNormalization",
)
# What these give has the scale of their weight; gates and softmax have not.
_LINEAR = (
    "Conv",
    "ConvTranspose",
    "Gemm",
    "MatMul",
    "Einsum",
    "FusedConv",
    "FusedGemm",
    "FusedMatMul",
)

# What a weight that is no kernel is, by operator and input.
_RECURRENT = ("RNN", "GRU", "LSTM")
_NAMED = 4  # of many nodes that read a kernel
_JOINING = ("Concat", "Expand")


@dataclass(frozen=True)
class LayerWeight:
    """The weight of a Conv, ConvTranspose, Gemm or MatMul, W or R of an LSTM, GRU or RNN; `reason`: why not pruned."""

    name: str
    op: str
    shape: tuple[int, ...]
    reason: str | None = None
    block_axis: int | None = None  # of its output channels, where these can be pruned in blocks

    @property
    def elements(self) -> int:
        """How many weights it has."""
        size = 1
        for n in self.shape:
            size *= n
        return size

    @property
    def is_prunable(self) -> bool:
        """Whether pruning may touch it."""
        return self.reason is None


@dataclass(frozen=True)
class OtherWeights:
    """Float weights that are no kernels, together where the same operator reads them as the same thing."""

    operator: str
    role: str
    num_tensors: int
    elements: int
    largest: str  # name of the largest


def find_layer_weights(
    model: OnnxModel,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    found: TensorReaders | None = None,
) -> list[LayerWeight]:
    """Every kernel of a model, in graph order, with the reason why it is not prunable; needs no torch.

    `found` are the readers of its tensors, where they are known already.
    """
    found = find_readers(model.graph) if found is None else found
    held = {name: tensor for name, tensor in iter_stored_tensors(model.graph) if name in found}
    rounded = find_integer_weights(model.graph)[0]
    kernels, formulas = [], find_frequencies(model.graph)
    for name, uses in found.items():
        operator = next((use.node.op_type for use in uses if use.is_weight), None)
        if operator is None or name in formulas or 0 in held[name].dims:
            continue
        is_weight = held[name].data_type in FLOAT_TYPES or name in rounded
        if is_weight and not _is_formula(_values(model, name, held[name]), uses):
            reason = _other_use(uses) or _left_out(name, include, exclude)
            shape = tuple(held[name].dims)
            kernels.append(
                LayerWeight(name, operator, shape, reason, _block_axis(name, shape, uses))
            )
    return kernels


def _values(model: OnnxModel, name: str, tensor: TensorProto) -> Array:
    return model.weights[name] if name in model.weights else to_array(tensor, name)


def get_block_axes(layer_weights: Collection[LayerWeight], block: str | None) -> dict[str, int]:
    """The kernels that are pruned in blocks, with the axis of their output channels; the others have single weights."""
    listed = [] if block is None else [k for k in layer_weights if k.is_prunable]
    return {k.name: k.block_axis for k in listed if k.block_axis is not None}


def find_other_weights(
    model: OnnxModel, layer_weights: Collection[LayerWeight], found: TensorReaders | None = None
) -> list[OtherWeights]:
    """What the float weights outside kernels are, those with the most elements first; `found` as for `find_kernels`."""
    known = {k.name for k in layer_weights}
    found = find_readers(model.graph) if found is None else found
    tensors, elements = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    largest: dict[tuple[str, str], tuple[int, str]] = {}
    for name, counted in iter_stored_float_weights(model):
        if name not in known:
            place = _place(found[name][0]) if name in found else ("", "read by nothing")
            tensors[place] += 1
            elements[place] += counted.elements
            if place not in largest or counted.elements > largest[place][0]:
                largest[place] = counted.elements, name
    listed = [
        OtherWeights(*place, tensors[place], elements[place], largest[place][1])
        for place in tensors
    ]
    return sorted(listed, key=lambda group: -group.elements)


def describe_other_weights(
    layer_weights: Collection[LayerWeight], others: Collection[OtherWeights]
) -> str | None:
    """A sentence about float weights that are no kernels, where they are more than a tenth of all."""
    in_kernels, total = (
        sum(k.elements for k in layer_weights),
        sum(group.elements for group in others),
    )
    if in_kernels >= MIN_LAYER_FRACTION * (in_kernels + total):
        return None
    counts: Counter[str] = Counter()
    for group in others:
        counts[group.operator or "others"] += group.elements
    said = ", ".join(f"{count:,} of {op}" for op, count in counts.most_common(3))
    return f"kernels hold {in_kernels / (in_kernels + total):.1%} of the weights; not pruned are above all {said}"


def find_ancestors(graph: GraphProto, outputs: Collection[str]) -> set[str]:
    """Every name that one of these outputs depends on."""
    needed = set(outputs)
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            for inner in get_subgraphs(node):
                needed |= find_ancestors(inner, [output.name for output in inner.output])
    return needed


def find_output_layers(
    graph: GraphProto, outputs: Collection[str], layer_weights: Collection[LayerWeight]
) -> set[str]:
    """The kernels that make these outputs: no other kernel lies between."""
    made: dict[str, set[str]] = defaultdict(set)
    names = {k.name for k in layer_weights}
    for name, uses in find_readers(graph).items():
        for use in uses if name in names else ():
            for value in filter(None, use.node.output):
                made[value].add(name)
    sources = {value: node for node in graph.node for value in node.output}
    found, waiting, seen = set[str](), list(outputs), set[str]()
    while waiting:
        value = waiting.pop()
        if value in made:
            found |= made[value]
        elif value in sources and value not in seen:
            waiting.extend(sources[value].input)
        seen.add(value)
    return found


def find_normalized_weights(graph: GraphProto, layer_weights: Collection[LayerWeight]) -> set[str]:
    """Kernels whose products only norms read, so that their scale does not matter; a bias may come between."""
    constants = collect_stored_tensors(graph)
    only_norms = dict.fromkeys((output.name for output in graph.output), False)
    for node in reversed(graph.node):
        norm = is_standard(node, *_NORMS)
        for value in node.input:
            passes = norm or (
                _only_moves(node, value, constants) and only_norms.get(node.output[0], False)
            )
            only_norms[value] = only_norms.get(value, True) and passes
        for nested in get_subgraphs(node):
            only_norms.update((value, False) for inner in nested.node for value in inner.input)
    names = {k.name for k in layer_weights}
    return {
        name
        for name, uses in find_readers(graph).items()
        if name in names
        and all(
            use.node.op_type in _LINEAR and only_norms.get(use.node.output[0], False)
            for use in uses
        )
    }


def _only_moves(node: NodeProto, value: str, constants: Collection[str]) -> bool:
    """Whether a node passes a value on, or adds a constant to it."""
    if is_standard(node, *VIEW_OPERATORS):
        return bool(node.input[0] == value)
    return is_standard(node, "Add") and all(
        name == value or name in constants for name in node.input
    )


def _place(use: TensorReader) -> tuple[str, str]:
    """The operator that reads a weight which is no kernel, and what it is there."""
    name, slot = use.node.op_type, use.slot
    if name in LOOKUP_OPERATORS or (name == "EmbedLayerNormalization" and slot < 5):
        return name, "a table, whose rows are looked up"
    if name.endswith("Normalization"):
        return name, "scales, shifts and statistics of norms"
    if name in ("Mul", "Div"):
        return name, "factors"
    if name in ("Add", "Sub", "Sum"):
        return name, "added, such as biases and tables of positions"
    if name in _JOINING:
        return name, "joined to the data, such as class tokens"
    if name in _RECURRENT and slot > 3:
        return name, "initial states and peepholes"
    if name in _LINEAR and slot == 0:
        return name, "a table, which another weight multiplies"
    return name, "biases" if name in (
        *_LINEAR,
        *_RECURRENT,
        "Attention",
        "BiasGelu",
        "FastGelu",
    ) else "no kernel"


def _is_formula(array: Array, uses: Sequence[TensorReader]) -> bool:
    """A lone number on the left of a product, or a mask, is nothing that was learned."""
    return (array.size == 1 and all(use.slot == 0 for use in uses)) or (
        array.dtype.kind != "i" and is_attention_mask(array)
    )


def _block_axis(name: str, shape: tuple[int, ...], uses: Sequence[TensorReader]) -> int | None:
    """The axis of a kernel's output channels; None where these make no whole blocks, or nodes do not agree on it."""
    axes = {_channels(name, shape, use) for use in uses}
    return axes.pop() if len(axes) == 1 else None


def _channels(name: str, shape: tuple[int, ...], use: TensorReader) -> int | None:
    """The same for one node, which must be a plain product that reads the kernel as it is stored."""
    node, slot = use.node, use.slot
    if (
        not is_standard(node, "Conv", "Gemm", "MatMul")
        or node.input[slot] != name
        or len(shape) < 2
    ):
        return None
    axis = get_output_axis(node, slot) % len(shape)
    groups = max([1, *(a.i for a in node.attribute if a.name == "group")])
    return None if shape[axis] % (BLOCK_SIZE * groups) else axis


def _other_use(uses: Sequence[TensorReader]) -> str | None:
    found = list(dict.fromkeys(format_node(use.node) for use in uses if not use.is_weight))
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"also read by {', '.join(found[:_NAMED])}{more}" if found else None


def _left_out(name: str, include: Sequence[str], exclude: Sequence[str]) -> str | None:
    for pattern in exclude:
        if fnmatchcase(name, pattern):
            return f"excluded by {pattern!r}"
    if include and not any(fnmatchcase(name, pattern) for pattern in include):
        return "matches no --include pattern"
    return None
