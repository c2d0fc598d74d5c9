"""Reject models that are not valid ONNX, and small files that would become huge models.

onnx's own checker verifies nodes against their schemas, names and the order of values, but trusts
stored tensors, text and functions. What it leaves out is checked first. The checker then sees an
outline of the model: the graph without the values of large tensors, with what only runtimes
tolerate put right.
"""

import math
from collections import Counter
from pathlib import Path

import numpy as np
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    checker,
)

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.edit import copy_fields
from ltp_pipeline.graph.infer_shapes import infer_shapes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import format_node, iter_graphs, iter_nodes, normalize_domain
from ltp_pipeline.graph.schemas import make_checkable
from ltp_pipeline.graph.tensors import (
    FLOAT_TYPES,
    clear_values,
    get_byte_size,
    has_all_values,
    iter_named_tensors,
    iter_stored_tensors,
)

EXPORT_HINT = "export the model again, or get it again from where it came from"
FUNCTION_HINT = "export the model without functions, or get it again from where it came from"
MAX_NAME_LENGTH = 1 << 16  # characters; no exporter writes thousands
MAX_CALL_DEPTH = 100  # functions that call each other in a chain
MAX_INLINED_NODES = 100_000  # nodes that inlining functions may add to a model
MAX_INLINED_BYTES = 1 << 26  # bytes that inlining functions may add to a model
SMALL_TENSOR_BYTES = 1 << 12  # smaller tensors may hold a shape, so checks see their values
_VALUE_FIELDS = (
    "float_data",
    "int32_data",
    "string_data",
    "int64_data",
    "double_data",
    "uint64_data",
)

FunctionKey = tuple[str, str, str]  # domain, name, overload


def check_validity(model: OnnxModel, path: Path | None = None) -> None:
    """Raise InputError if a model is not valid ONNX; its path is for the message."""
    name = str(path or "the model")
    proto = model.proto
    if not proto.graph.node:
        raise InputError(f"{name} has no nodes", "pass a trained ONNX model")
    if not proto.graph.output:
        raise InputError(f"{name} has no outputs", "pass a trained ONNX model")
    _check_text(proto)
    _check_versions(proto)
    for tensor_name, tensor in iter_named_tensors(proto, sparse=True):
        _check_values(tensor, is_separate=tensor_name in model.weights)
    for graph in iter_graphs(proto.graph):
        _check_outputs(graph)
    for node in iter_nodes(proto.graph):
        _check_attributes(node)
    if proto.functions:
        _check_functions(proto)
    try:
        checker.check_model(_make_outline(model).SerializeToString())
    except Exception as error:  # noqa: BLE001 - the checker's C++ errors share no narrower type
        message = f"{name} is not valid ONNX: {_join_lines(error)}"
        raise InputError(message, EXPORT_HINT) from None
    _check_finite(model)


def check_declared_types(model: OnnxModel) -> None:
    """Raise InputError if values have other types or shapes than the file declares.

    The exported files would contradict themselves in the same way. Files that only onnxruntime
    reads, whose values onnx cannot infer, are left to onnxruntime.
    """
    for value in (*model.graph.input, *model.graph.output):
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            return
    if make_checkable(copy_proto(model.proto)):
        return
    try:
        proto = model.to_proto(max_bytes=SMALL_TENSOR_BYTES)
        infer_shapes(proto, strict=True)
    except Exception as error:  # noqa: BLE001 - onnx's C++ errors share no narrower type
        message = f"the model is not valid ONNX: {_join_lines(error, max_lines=2)}"
        raise InputError(message, EXPORT_HINT) from None


def _join_lines(error: Exception, max_lines: int | None = None) -> str:
    """Return the lines of an error of onnx as one line of at most 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:max_lines])[:300] or type(error).__name__


def _check_text(message: Message) -> None:
    """Raise InputError if a text in a message is not UTF-8, or a name is too long.

    protobuf returns text that is not UTF-8 as bytes. It would fail later, where nothing can say
    which name it was.
    """
    for field, value in message.ListFields():
        if field.name in ("doc_string", "type"):
            continue
        parts = value
        if isinstance(value, str | bytes | Message):
            parts = [value]
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for part in parts:
                _check_text(part)
        elif field.type == FieldDescriptor.TYPE_STRING:
            may_be_long = field.name == "value"  # of a label
            for text in parts:
                if not isinstance(text, str):
                    name = text[:MAX_NAME_LENGTH]
                    raise InputError(f"the name {name!r} is not UTF-8 text", EXPORT_HINT)
                if len(text) > MAX_NAME_LENGTH and not may_be_long:
                    raise InputError(
                        f"the name '{text[:MAX_NAME_LENGTH]}' has {len(text):,} characters; "
                        f"at most {MAX_NAME_LENGTH:,} are supported",
                        "export the model with shorter names",
                    )


def _check_attributes(node: NodeProto) -> None:
    """Raise InputError if an attribute refers to one of a function that the node is not part of."""
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            raise InputError(
                f"attribute {attribute.name!r} of {format_node(node)} has no value: "
                "only nodes of functions may refer to an attribute",
                EXPORT_HINT,
            )


def _check_versions(model: ModelProto) -> None:
    """Raise InputError if an operator set is imported in two versions."""
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        version = versions.setdefault(normalize_domain(entry.domain), entry.version)
        if version != entry.version:
            raise InputError(
                f"operators of the domain '{entry.domain}' are imported in versions {version} "
                f"and {entry.version}",
                EXPORT_HINT,
            )


def _check_values(tensor: TensorProto, is_separate: bool) -> None:
    """Raise InputError if a tensor does not hold the values of its dims exactly once.

    Those of a separate tensor were moved out of it when the file was read.
    """
    label = f"tensor '{tensor.name}'"
    if tensor.HasField("segment"):
        raise InputError(f"{label} is a segment of another, which no runtime reads", EXPORT_HINT)
    places = int(is_separate) + int(tensor.HasField("raw_data"))
    places += sum(bool(getattr(tensor, field)) for field in _VALUE_FIELDS)
    if places > 1:
        raise InputError(f"{label} holds its values twice", EXPORT_HINT)
    if is_separate:
        return
    if tensor.data_location == TensorProto.EXTERNAL:
        raise InputError(
            f"the values of {label} are in another file",
            "pass the path of the model file instead of the model",
        )
    if not has_all_values(tensor):
        raise InputError(
            f"{label} does not hold the values of its dims {list(tensor.dims)}", EXPORT_HINT
        )


def _check_outputs(graph: GraphProto) -> None:
    """Raise InputError if two outputs of a graph have the same name."""
    names: set[str] = set()
    for output in graph.output:
        if output.name in names:
            raise InputError(f"the output '{output.name}' is there twice", EXPORT_HINT)
        names.add(output.name)


def _check_functions(model: ModelProto) -> None:
    """Raise InputError if functions call themselves, or would make the model too large."""
    functions = {_get_key(f.domain, f.name, f): f for f in model.functions}
    own_sizes: dict[FunctionKey, Counter[str]] = {}
    for key, function in functions.items():
        num_nodes = sum(1 for _ in iter_nodes(function))
        own_sizes[key] = Counter(nodes=num_nodes, bytes=function.ByteSize())
    inlined_sizes: dict[FunctionKey, Counter[str]] = {}

    def measure_calls(
        part: GraphProto | FunctionProto, callers: tuple[FunctionKey, ...]
    ) -> Counter[str]:
        """Add up the sizes of the functions that a graph or function calls."""
        total: Counter[str] = Counter()
        for node in iter_nodes(part):
            key = _get_key(node.domain, node.op_type, node)
            if key not in functions:
                continue
            if key in callers:
                raise InputError(f"the function '{key[1]}' calls itself", FUNCTION_HINT)
            if len(callers) >= MAX_CALL_DEPTH:
                message = f"the function '{key[1]}' is called through over {MAX_CALL_DEPTH} others"
                raise InputError(message, FUNCTION_HINT)
            if key not in inlined_sizes:
                calls = measure_calls(functions[key], (*callers, key))
                inlined_sizes[key] = own_sizes[key] + calls
            total.update(inlined_sizes[key])
        return total

    total = measure_calls(model.graph, ())
    # Every function stands in the file once; only what calls add to that makes the model larger.
    added = total.copy()
    for size in own_sizes.values():
        added.subtract(size)
    if added["nodes"] > MAX_INLINED_NODES or added["bytes"] > MAX_INLINED_BYTES:
        raise InputError(
            f"the model's functions have {total['nodes']:,} nodes and {total['bytes']:,} bytes "
            "when they are inlined",
            FUNCTION_HINT,
        )


def _get_key(domain: str, name: str, owner: FunctionProto | NodeProto) -> FunctionKey:
    # Older versions of onnx have no overloads.
    return normalize_domain(domain), name, getattr(owner, "overload", "")


def _make_outline(model: OnnxModel) -> ModelProto:
    """Return a copy of a model for the checker.

    The values of weights and of large tensors are left out. What runtimes tolerate is put right:
    operators that onnxruntime adds, graphs without a name, inputs and outputs without a shape.
    """
    outline = ModelProto()
    copy_fields(model.proto, outline, skip={"graph", "training_info"})
    copy_fields(model.graph, outline.graph, skip={"initializer"})
    outline.graph.name = outline.graph.name or "graph"
    for tensor in model.graph.initializer:
        outline.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=[0])
    make_checkable(outline)
    for name, tensor in iter_named_tensors(outline):
        if name in model.weights or get_byte_size(tensor) >= SMALL_TENSOR_BYTES:
            clear_values(tensor)
            tensor.dims[:] = [0]
    for graph in iter_graphs(outline.graph):
        for value in (*graph.input, *graph.output):
            kind = value.type.WhichOneof("value")
            if kind == "tensor_type" and not value.type.tensor_type.HasField("shape"):
                value.type.tensor_type.shape.SetInParent()
    return outline


def _check_finite(model: OnnxModel) -> None:
    """Raise InputError if a weight contains NaN.

    A single NaN is a constant that some graphs compare values with.
    """
    with np.errstate(invalid="ignore"):
        for name, tensor in iter_stored_tensors(model.graph):
            if tensor.data_type not in FLOAT_TYPES:
                continue
            array = model.get_array(name, tensor)
            if array.size > 1 and math.isnan(array.min()):
                raise InputError(
                    f"tensor '{name}' contains NaN", "pass a model whose training did not diverge"
                )
