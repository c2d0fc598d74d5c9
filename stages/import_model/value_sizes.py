"""What onnx infers about the values of a graph: whether they fit what the file declares, and fit into memory."""

import math
from collections.abc import Mapping

from onnx import ModelProto, shape_inference

from ltp_pipeline.errors import InputError, UnsupportedModel, summarize_error
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import format_node
from ltp_pipeline.graph.schemas import make_checkable
from ltp_pipeline.graph.view import GraphView
from ltp_pipeline.stages.import_model.validity import AGAIN
from ltp_pipeline.system import memory
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.memory import GIGABYTE

_SMALL = 1 << 12  # bytes of a tensor whose values may tell a shape
_WIDTH = 4  # bytes of an element; types that are wider or narrower change little


def check_declared_types(model: OnnxModel) -> None:
    """Refuse a file whose values have other types or shapes than it declares: what is exported would be so too.

    Files that onnx cannot infer, which onnxruntime reads, are left to onnxruntime.
    """
    values = [
        v.type.tensor_type
        for v in (*model.graph.input, *model.graph.output)
        if v.type.HasField("tensor_type")
    ]
    if not all(v.HasField("shape") for v in values) or make_checkable(copy_proto(model.proto)):
        return
    try:
        shape_inference.infer_shapes(
            model.to_proto(max_bytes=_SMALL), check_type=True, strict_mode=True
        )
    except Exception as error:  # noqa: BLE001 - onnx's C++ errors share no narrower type
        raise InputError(f"the model is not valid ONNX: {_reason(error)}", AGAIN) from None


def require_room(model: OnnxModel, samples: Mapping[str, Array] | None = None) -> None:
    """Refuse a graph with a value that is larger than the memory; sizes that are not known count as one."""
    free = memory.available_memory()
    if free is None:
        return
    proto = model.to_proto(max_bytes=_SMALL)
    for value in proto.graph.input:
        dims = value.type.tensor_type.shape.dim
        known = samples[value.name].shape[1:] if samples and value.name in samples else ()
        sizes = (1, *known) if len(known) == len(dims) - 1 else (1,) * len(dims)
        for dim, size in zip(dims, sizes, strict=True):
            if not dim.HasField("dim_value"):
                dim.dim_value = size
    name, elements = _largest(proto)
    if elements * _WIDTH > free:
        node = GraphView(model.graph).producers.get(name)
        where = f"{format_node(node)}: " if node is not None else ""
        told = f"{elements:,} elements take {elements * _WIDTH / GIGABYTE:,.1f} GB, and {free / GIGABYTE:,.1f} GB"
        raise UnsupportedModel(
            f"{where}value '{name}' does not fit into memory: its {told} are free",
            "check pads, scales and sizes of this node and of what it reads, or use a machine with more memory",
        )


def _largest(proto: ModelProto) -> tuple[str, int]:
    """The value with the most elements, and how many, as far as they can be inferred."""
    try:
        graph = shape_inference.infer_shapes(
            proto
        ).graph  # without data_prop, which makes every number of a Range
    except Exception:  # noqa: BLE001 - the graph has a flaw that is told elsewhere
        return "", 0
    found = ("", 0)
    for value in (*graph.input, *graph.value_info, *graph.output):
        elements = math.prod(max(dim.dim_value, 1) for dim in value.type.tensor_type.shape.dim)
        found = max(found, (value.name, elements), key=lambda pair: pair[1])
    return found


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])[:300] or summarize_error(error)
