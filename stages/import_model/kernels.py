"""Which tensors are kernels: the weights of Conv, ConvTranspose, Gemm and MatMul, and what keeps one from pruning."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from onnx import GraphProto, NodeProto

from ltp_pipeline.config import KernelSettings
from ltp_pipeline.records import Kernel
from ltp_pipeline.stages.import_model.program import label

WEIGHT_SLOTS: Mapping[str, tuple[int, ...]] = {"Conv": (1,), "ConvTranspose": (1,), "Gemm": (0, 1), "MatMul": (0, 1)}
# A weight that only passes through these is still the same weight: they move elements, they do not mix them.
_VIEWS = frozenset({"Identity", "Transpose", "Reshape", "Cast", "Squeeze", "Unsqueeze", "Flatten"})


def find_kernels(graph: GraphProto, shapes: Mapping[str, tuple[int, ...]], settings: KernelSettings) -> list[Kernel]:
    """Every kernel among the trained tensors `shapes`, in graph order, with the reason why it is not prunable."""
    readers = _readers(graph, shapes)
    kernels = []
    for name, nodes in readers.items():
        operators = [n.op_type for n, slot in nodes if slot in WEIGHT_SLOTS.get(n.op_type, ())]
        if operators:
            reason = _other_use(nodes) or _left_out(name, settings)
            kernels.append(Kernel(name, operators[0], shapes[name], reason))
    return kernels


def _readers(graph: GraphProto, names: Collection[str]) -> dict[str, list[tuple[NodeProto, int]]]:
    """For each tensor the nodes that read it, looking through views; ordered by first use."""
    source: dict[str, str] = {}
    readers: dict[str, list[tuple[NodeProto, int]]] = defaultdict(list)
    for node in graph.node:
        for slot, value in enumerate(node.input):
            name = source.get(value, value)
            if name not in names:
                continue
            if node.op_type in _VIEWS and slot == 0:
                source[node.output[0]] = name
            else:
                readers[name].append((node, slot))
    for output in graph.output:
        if source.get(output.name, output.name) in names:
            readers[source.get(output.name, output.name)].append((NodeProto(op_type="output", name=output.name), 0))
    return readers


def _other_use(nodes: list[tuple[NodeProto, int]]) -> str | None:
    others = [label(n) for n, slot in nodes if slot not in WEIGHT_SLOTS.get(n.op_type, ())]
    return f"also read by {', '.join(others)}" if others else None


def _left_out(name: str, settings: KernelSettings) -> str | None:
    for pattern in settings.exclude:
        if fnmatchcase(name, pattern):
            return f"excluded by {pattern!r}"
    if settings.include and not any(fnmatchcase(name, pattern) for pattern in settings.include):
        return "matches no --include pattern"
    return None
