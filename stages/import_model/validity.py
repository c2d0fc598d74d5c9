"""Is a model valid ONNX? What could crash, hang or flood later steps is found here and refused by name."""

from collections import Counter
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, checker, helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph import (
    FLOAT_TYPES,
    Model,
    allow_onnxruntime,
    byte_size,
    elements,
    every_graph,
    every_node,
    is_constant,
    named_tensors,
    set_initializers,
    set_nodes,
    stored,
)

AGAIN = "export the model again, or get it again from where it came from"
MOST_NODES = 1_000_000
_TYPED = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
_INLINE = 1 << 12  # bytes: larger tensors are shown to the checker by name and shape only


def require_valid(given: Model, path: Path | None = None) -> None:
    """Refuse a model that is not valid ONNX, with the name of what is wrong."""
    what, model = str(path or "the model"), given.proto
    if not model.graph.node:
        raise InputError(f"{what} has no nodes", "give a trained ONNX model")
    if not model.graph.output:
        raise InputError(f"{what} has no outputs", "give a trained ONNX model")
    _check_text(model)
    for name, tensor in named_tensors(model, sparse=True):
        if name not in given.weights:
            _check_tensor(tensor)
    for graph in every_graph(model.graph):
        _check_names(graph)
    _check_functions(model)
    try:
        checker.check_model(_outline(given))
    except Exception as error:  # noqa: BLE001 - the checker's C++ errors share no narrower type
        lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
        detail = " ".join(lines)[:300] or type(error).__name__
        raise InputError(f"{what} is not valid ONNX: {detail}", AGAIN) from None
    _check_values(given)


def _check_text(model: ModelProto) -> None:
    """Names that are no UTF-8 arrive as bytes, and would fail later in places that cannot say where."""
    functions = model.functions
    for node in (*every_node(model.graph), *(n for f in functions for n in f.node)):
        attributes = (text for a in node.attribute for text in (a.name, a.ref_attr_name))
        _require_text(node.name, node.op_type, node.domain, *node.input, *node.output, *attributes)
    for graph in every_graph(model.graph):
        _require_text(graph.name, *(t.name for t in graph.initializer))
        _require_text(*(v.name for values in (graph.input, graph.output, graph.value_info) for v in values))
    _require_text(*(o.domain for part in (model, *functions) for o in part.opset_import))
    _require_text(*(name for f in functions for name in (f.name, f.domain, *f.input, *f.output, *f.attribute)))
    _require_text(*(text for entry in model.metadata_props for text in (entry.key, entry.value)))
    _require_text(model.producer_name, model.producer_version)


def _require_text(*names: object) -> None:
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"the name {name!r} is not UTF-8 text", AGAIN)


def _check_tensor(tensor: TensorProto) -> None:
    if tensor.data_location == TensorProto.EXTERNAL:
        raise InputError(f"the values of tensor '{tensor.name}' are in another file", "give the path of the model file")
    if tensor.data_type == TensorProto.STRING:
        return
    needed = byte_size(tensor)
    if tensor.HasField("raw_data"):
        fits = len(tensor.raw_data) == needed
    else:  # one field per kind of type; the small types share an element
        fits = elements(tensor) <= 2 * max(len(getattr(tensor, field)) for field in _TYPED)
    if not fits:
        raise InputError(
            f"tensor '{tensor.name}' does not hold the values that its dims {list(tensor.dims)} say", AGAIN
        )


def _check_names(graph: GraphProto) -> None:
    for kind, values in (("initializer", graph.initializer), ("input", graph.input), ("output", graph.output)):
        twice = next((n for n, count in Counter(v.name for v in values).items() if count > 1), None)
        if twice is not None:
            raise InputError(f"the {kind} '{twice}' is there twice", AGAIN)


def _check_functions(model: ModelProto) -> None:
    """Functions that call each other in a circle, or grow beyond measure when written out, are refused."""
    functions = {(f.domain, f.name): f for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(key: tuple[str, str], above: tuple[tuple[str, str], ...]) -> int:
        if key in above or len(above) > 100:
            raise InputError(f"the function '{key[1]}' calls itself", AGAIN)
        if key not in sizes:
            nodes = functions[key].node
            inner = [(n.domain, n.op_type) for n in nodes]
            sizes[key] = len(nodes) + sum(size(k, (*above, key)) for k in inner if k in functions)
        return sizes[key]

    total = sum(size(k, ()) for n in every_node(model.graph) if (k := (n.domain, n.op_type)) in functions)
    if total + len(model.graph.node) > MOST_NODES:
        raise InputError(f"the model has {total:,} nodes once its functions are written out", AGAIN)


def _outline(model: Model) -> ModelProto:
    """The model for the checker: large tensors are inputs, and what runtimes forgive is filled in."""
    outline = model.filled(below=_INLINE)
    outline.ClearField("training_info")
    outline.graph.name = outline.graph.name or "graph"
    allow_onnxruntime(outline)
    inputs = {value.name for value in outline.graph.input}
    large = {name: t for name, t in stored(outline.graph).items() if byte_size(t) >= _INLINE}
    large |= {name: model.tensors[name] for name, array in model.weights.items() if array.nbytes >= _INLINE}
    for name, tensor in large.items():
        if name not in inputs:
            outline.graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    for graph in every_graph(outline.graph):
        if large:
            set_initializers(graph, [t for t in graph.initializer if t.name not in large])
            set_nodes(graph, [n for n in graph.node if not is_constant(n) or n.output[0] not in large])
        for value in (*graph.input, *graph.output):
            kind = value.type.WhichOneof("value")
            if kind == "tensor_type" and not value.type.tensor_type.HasField("shape"):
                value.type.tensor_type.shape.SetInParent()
    return outline


def _check_values(model: Model) -> None:
    """Weights that are not numbers cannot be trained; a lone NaN is a constant that some graph compares with."""
    for name, tensor in stored(model.graph).items():
        if tensor.data_type not in FLOAT_TYPES:
            continue
        array = model.array(name)
        if array.size < 2:
            continue
        with np.errstate(all="ignore"):
            suspicious = not np.isfinite(array.sum())
            if suspicious and np.isnan(array.astype(np.float64)).any():
                raise InputError(f"tensor '{name}' contains NaN", "give a model whose training did not diverge")
