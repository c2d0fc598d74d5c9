"""Is a model valid ONNX? What could crash, hang or flood later steps is found here and refused by name."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, checker

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.edit import copy_fields
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import get_subgraphs, iter_graphs, iter_nodes, normalize_domain
from ltp_pipeline.graph.schemas import make_checkable
from ltp_pipeline.graph.tensors import (
    FLOAT_TYPES,
    clear_values,
    get_byte_size,
    has_all_values,
    iter_named_tensors,
    iter_stored_tensors,
    to_array,
)
from ltp_pipeline.stages.import_model.function_calls import require_bounded

AGAIN = "export the model again, or get it again from where it came from"
LONGEST_NAME = 1 << 16  # characters; no exporter writes thousands
FREE_INITIALIZERS = 4  # the IR version from which an initializer need not be an input
_NUMBERS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_INLINE = 1 << 12  # bytes: larger tensors are shown to the checker without their values
_OUTLINE = "ltp.outline"  # a domain that no model has
_AT_A_TIME = 5_000  # nodes that the checker is shown


def check_validity(given: OnnxModel, path: Path | None = None) -> None:
    """Refuse a model that is not valid ONNX, with the name of what is wrong."""
    what, model = str(path or "the model"), given.proto
    if not model.graph.node:
        raise InputError(f"{what} has no nodes", "give a trained ONNX model")
    if not model.graph.output:
        raise InputError(f"{what} has no outputs", "give a trained ONNX model")
    _check_text(model)
    _check_versions(model)
    for name, tensor in iter_named_tensors(model, sparse=True):
        _check_fields(tensor, name in given.weights)
        if name not in given.weights:
            _check_tensor(tensor)
    for graph in iter_graphs(model.graph):
        _check_names(graph)
    if model.functions:
        require_bounded(model)
    try:
        for outline in _outlines(given):
            checker.check_model(outline)
    except Exception as error:  # noqa: BLE001 - the checker's C++ errors share no narrower type
        lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
        detail = " ".join(lines)[:300] or type(error).__name__
        raise InputError(f"{what} is not valid ONNX: {detail}", AGAIN) from None
    _check_values(given)


def _check_text(model: ModelProto) -> None:
    """Names that are no UTF-8 arrive as bytes, and would fail later in places that cannot say where."""
    for name in _texts(model):
        if not isinstance(name, str):
            raise InputError(f"the name {name[:LONGEST_NAME]!r} is not UTF-8 text", AGAIN)
        if len(name) > LONGEST_NAME:
            what = f"the name '{name[:LONGEST_NAME]}' has {len(name):,} characters; at most {LONGEST_NAME:,} are taken"
            raise InputError(what, "export the model with shorter names")


def _texts(model: ModelProto) -> Iterator[str | bytes]:
    yield from (model.producer_name, model.producer_version)
    for entry in model.metadata_props:
        yield entry.key
        if not isinstance(entry.value, str):  # which may be long
            yield entry.value
    for graph in iter_graphs(model.graph):
        yield graph.name
        yield from (tensor.name for tensor in graph.initializer)
        yield from (tensor.values.name for tensor in graph.sparse_initializer)
        yield from (
            v.name for values in (graph.input, graph.output, graph.value_info) for v in values
        )
        yield from _node_texts(graph.node)
    for function in model.functions:
        yield from (
            function.name,
            function.domain,
            *function.input,
            *function.output,
            *function.attribute,
        )
        yield from (entry.domain for entry in function.opset_import)
        yield from _node_texts(function.node)
        for nested in (
            graph
            for node in function.node
            for outer in get_subgraphs(node)
            for graph in iter_graphs(outer)
        ):
            yield from _node_texts(nested.node)
    yield from (entry.domain for entry in model.opset_import)


def _node_texts(nodes: Iterable[NodeProto]) -> Iterator[str | bytes]:
    for node in nodes:
        yield node.name
        yield node.op_type
        yield node.domain
        yield from node.input
        yield from node.output
        for attribute in node.attribute:
            yield attribute.name
            yield attribute.ref_attr_name


def _check_versions(model: ModelProto) -> None:
    """An operator set has one version, and old files list their initializers among the inputs."""
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        version = versions.setdefault(normalize_domain(entry.domain), entry.version)
        if version != entry.version:
            what = f"operators of the domain '{entry.domain}' are imported in versions {version} and {entry.version}"
            raise InputError(what, AGAIN)
    if model.ir_version < FREE_INITIALIZERS:
        given = {value.name for value in model.graph.input}
        hidden = next(
            (tensor.name for tensor in model.graph.initializer if tensor.name not in given), None
        )
        if hidden is not None:
            what = f"the initializer '{hidden}' is no input of the graph, and files of IR version {model.ir_version}"
            raise InputError(f"{what} have them all as inputs", AGAIN)


def _check_fields(tensor: TensorProto, lifted: bool) -> None:
    """Values that stand twice may be two; `lifted` are those that were taken out of the tensor."""
    if tensor.HasField("segment"):
        raise InputError(
            f"tensor '{tensor.name}' is a segment of another, which no runtime reads", AGAIN
        )
    held = (
        sum(bool(getattr(tensor, name)) for name in _NUMBERS) + tensor.HasField("raw_data") + lifted
    )
    if held > 1:
        raise InputError(f"tensor '{tensor.name}' holds its values twice", AGAIN)


def _check_tensor(tensor: TensorProto) -> None:
    if tensor.data_location == TensorProto.EXTERNAL:
        raise InputError(
            f"the values of tensor '{tensor.name}' are in another file",
            "give the path of the model file",
        )
    if not has_all_values(tensor):
        dims = list(tensor.dims)
        raise InputError(
            f"tensor '{tensor.name}' does not hold the values that its dims {dims} say", AGAIN
        )


def _check_names(graph: GraphProto) -> None:
    if not all(tensor.name for tensor in graph.initializer):
        raise InputError("an initializer has no name", AGAIN)
    for kind, values in (
        ("initializer", graph.initializer),
        ("input", graph.input),
        ("output", graph.output),
    ):
        if len(values) < 2:
            continue
        names = [value.name for value in values]
        if len(set(names)) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise InputError(f"the {kind} '{twice}' is there twice", AGAIN)


def _outlines(model: OnnxModel) -> Iterator[bytes]:
    """The model for the checker, some nodes at a time: for all of them it would take more memory than the model does.

    The values of weights and large tensors are left out, and what runtimes forgive is put right.
    """
    made = {tensor.name for tensor in model.graph.initializer}
    for start in range(0, len(model.graph.node), _AT_A_TIME):
        nodes, outline = model.graph.node[start : start + _AT_A_TIME], ModelProto()
        if start == 0:
            copy_fields(model.proto, outline, skip={"graph", "training_info"})
            copy_fields(model.graph, outline.graph, skip={"node", "initializer", "output"})
        else:
            outline.ir_version = model.proto.ir_version
            outline.opset_import.extend(model.proto.opset_import)
        outline.graph.name = model.graph.name or "graph"
        outline.graph.node.extend(nodes)
        if start + _AT_A_TIME >= len(model.graph.node):
            outline.graph.output.extend(model.graph.output)
        _ease(outline, model)
        here = {value.name for value in outline.graph.input}
        yield (
            _before({name for name in _names_in(outline.graph) - here if name in made})
            + outline.SerializeToString()
        )
        made |= here | {name for node in nodes for name in node.output}


def _before(names: Collection[str]) -> bytes:
    """What lies before some nodes, as the outputs of one; appended to it, their model is merged into it."""
    front = ModelProto()
    if names:
        front.graph.node.add(op_type="Before", domain=_OUTLINE, output=sorted(names))
        front.opset_import.add(domain=_OUTLINE, version=1)
    content: bytes = front.SerializeToString()
    return content


def _names_in(graph: GraphProto) -> set[str]:
    """Every name that nodes read or make, those of nested graphs too."""
    found = {
        name for node in iter_nodes(graph) for names in (node.input, node.output) for name in names
    }
    for nested in iter_graphs(graph):
        found.update(
            value.name for values in (nested.output, nested.initializer) for value in values
        )
    return found


def _ease(outline: ModelProto, model: OnnxModel) -> None:
    """Leave values out, and let pass what runtimes forgive."""
    make_checkable(outline)
    for name, tensor in iter_named_tensors(outline):
        if name not in model.weights:
            if get_byte_size(tensor) < _INLINE:
                continue
            clear_values(tensor)
        tensor.dims[:] = [0]
    for graph in iter_graphs(outline.graph):
        for value in (*graph.input, *graph.output):
            kind = value.type.WhichOneof("value")
            if kind == "tensor_type" and not value.type.tensor_type.HasField("shape"):
                value.type.tensor_type.shape.SetInParent()


def _check_values(model: OnnxModel) -> None:
    """Weights that are not numbers cannot be trained; a lone NaN is a constant that some graph compares with."""
    floats = (
        (name, t) for name, t in iter_stored_tensors(model.graph) if t.data_type in FLOAT_TYPES
    )
    with np.errstate(invalid="ignore"):
        for name, tensor in floats:
            array = model.weights[name] if name in model.weights else to_array(tensor, name)
            if array.size > 1 and math.isnan(array.min()):
                raise InputError(
                    f"tensor '{name}' contains NaN", "give a model whose training did not diverge"
                )
