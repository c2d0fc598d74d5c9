"""Which tensors are kernels: the weights of Conv, ConvTranspose, Gemm and MatMul, and what keeps one from pruning."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

import numpy as np
from onnx import GraphProto, NodeProto

from ltp_pipeline.config import KernelSettings
from ltp_pipeline.exporters import float_weights
from ltp_pipeline.graph import FLOAT_TYPES, Array, Model, Use, is_standard, label, reads, stored, subgraphs
from ltp_pipeline.records import MOST_WEIGHTS, Kernel

WEIGHT_SLOTS: Mapping[str, tuple[int, ...]] = {"Conv": (1,), "ConvTranspose": (1,), "Gemm": (0, 1), "MatMul": (0, 1)}
_FUSED_DOMAIN = "com.microsoft"  # onnxruntime writes optimised models with an activation fused into these
_FUSED_SLOTS = {f"Fused{name}": slots for name, slots in WEIGHT_SLOTS.items()}
# A weight that only passes through these is still the same weight: they move elements, they do not mix them.
_VIEWS = ("Identity", "Transpose", "Reshape", "Cast", "Squeeze", "Unsqueeze", "Flatten")

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


def find_kernels(model: Model, settings: KernelSettings) -> list[Kernel]:
    """Every kernel of a model, in graph order, with the reason why it is not prunable; needs no torch."""
    tensors = {name: t for name, t in stored(model.graph).items() if t.data_type in FLOAT_TYPES and 0 not in t.dims}
    kernels = []
    for name, uses in _readers(model.graph, tensors).items():
        operators = [node.op_type for node, slot in uses if _is_weight(node, slot)]
        if operators and not _is_formula(model.array(name), uses):
            reason = _other_use(uses) or _left_out(name, settings)
            kernels.append(Kernel(name, operators[0], tuple(tensors[name].dims), reason))
    return kernels


def elsewhere(model: Model, kernels: Collection[Kernel]) -> str | None:
    """A sentence about float weights that are no kernels, where they are more than a tenth of all."""
    known = {k.name for k in kernels}
    others = {name: c.elements for name, c in float_weights(model) if name not in known}
    in_kernels, total = sum(k.elements for k in kernels), sum(others.values())
    if in_kernels >= MOST_WEIGHTS * (in_kernels + total):
        return None
    readers = _readers(model.graph, others)
    counts: Counter[str] = Counter()
    for name, size in others.items():
        counts[readers[name][0].node.op_type if name in readers else "others"] += size
    said = ", ".join(f"{count:,} of {op}" for op, count in counts.most_common(3))
    return f"kernels hold {in_kernels / (in_kernels + total):.1%} of the weights; not pruned are above all {said}"


def behind(graph: GraphProto, outputs: Collection[str]) -> set[str]:
    """Every name that one of these outputs depends on."""
    needed = set(outputs)
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            for inner in subgraphs(node):
                needed |= behind(inner, [output.name for output in inner.output])
    return needed


def makers(graph: GraphProto, outputs: Collection[str], kernels: Collection[Kernel]) -> set[str]:
    """The kernels that make these outputs: no other kernel lies between."""
    made: dict[str, set[str]] = defaultdict(set)
    for name, uses in _readers(graph, {k.name for k in kernels}).items():
        for node, _ in uses:
            for value in node.output:
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


def normalised(graph: GraphProto, kernels: Collection[Kernel]) -> set[str]:
    """Kernels whose products only norms read, so that their scale does not matter; a bias may come between."""
    constants = stored(graph)
    only_norms = dict.fromkeys((output.name for output in graph.output), False)
    for node in reversed(graph.node):
        norm = is_standard(node, *_NORMS)
        for value in node.input:
            passes = norm or (_only_moves(node, value, constants) and only_norms.get(node.output[0], False))
            only_norms[value] = only_norms.get(value, True) and passes
        for nested in subgraphs(node):
            only_norms.update((value, False) for inner in nested.node for value in inner.input)
    users = _readers(graph, {k.name for k in kernels})
    return {
        name
        for name, uses in users.items()
        if all(node.output and only_norms.get(node.output[0], False) for node, _ in uses)
    }


def _only_moves(node: NodeProto, value: str, constants: Collection[str]) -> bool:
    """Whether a node passes a value on, or adds a constant to it."""
    if is_standard(node, *_VIEWS):
        return bool(node.input[0] == value)
    return is_standard(node, "Add") and all(name == value or name in constants for name in node.input)


def _readers(graph: GraphProto, names: Collection[str]) -> dict[str, list[Use]]:
    """For each tensor the nodes that read it, looking through views and into subgraphs; ordered by first use."""
    readers: dict[str, list[Use]] = defaultdict(list)
    for node, slot, name in reads(graph, through=_VIEWS, outputs=True):
        if name in names:
            readers[name].append(Use(node, slot))
    return readers


def _is_weight(node: NodeProto, slot: int) -> bool:
    if node.domain == _FUSED_DOMAIN:
        return slot in _FUSED_SLOTS.get(node.op_type, ())
    return is_standard(node, *WEIGHT_SLOTS) and slot in WEIGHT_SLOTS[node.op_type]


def _is_formula(array: Array, uses: list[Use]) -> bool:
    """A lone number on the left of a product, or a tensor with infinities (a mask), is nothing that was learned."""
    if array.size == 1 and all(slot == 0 for _, slot in uses):
        return True
    # A sum is not finite when an element is not; only then is the long way worth taking.
    with np.errstate(all="ignore"):
        return not np.isfinite(array.sum()) and not np.isfinite(array.astype(np.float64)).all()


def _other_use(uses: list[Use]) -> str | None:
    others = dict.fromkeys(label(node) for node, slot in uses if not _is_weight(node, slot))
    return f"also read by {', '.join(others)}" if others else None


def _left_out(name: str, settings: KernelSettings) -> str | None:
    for pattern in settings.exclude:
        if fnmatchcase(name, pattern):
            return f"excluded by {pattern!r}"
    if settings.include and not any(fnmatchcase(name, pattern) for pattern in settings.include):
        return "matches no --include pattern"
    return None
