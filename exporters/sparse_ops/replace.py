"""Nodes of a graph turned into the operators of the library, with what follows them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from ltp_pipeline.exporters.sparse_ops import functions
from ltp_pipeline.graph.constants import Constants, collect_constants, get_small_value
from ltp_pipeline.graph.edit import drop_inputs, raise_ir_version, set_initializers, set_nodes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import get_attribute, is_standard
from ltp_pipeline.graph.schemas import get_opsets, get_standard_opset
from ltp_pipeline.graph.view import GraphView, iter_read_names

Shapes = Mapping[str, tuple[object, ...]]


@dataclass(frozen=True)
class ConvertedChain:
    """A chain of nodes that became one, by the kernel that it has."""

    weight_name: str
    nodes: tuple[NodeProto, ...]
    sparse_node: NodeProto


def convert_to_sparse_ops(
    model: OnnxModel, weight_names: Collection[str]
) -> tuple[OnnxModel, list[ConvertedChain]]:
    """The model with every eligible node that has one of these kernels turned over, and which those are."""
    proto = copy_proto(model.proto)
    before = list(
        proto.graph.node
    )  # kept, because protobuf's objects are the same only as long as one is held
    found = _find_chains(model, proto, before, weight_names)
    last = {id(turned.nodes[-1]): turned.sparse_node for turned in found}
    gone = {id(node) for turned in found for node in turned.nodes}
    nodes = [
        last.get(id(node), node) for node in before if id(node) not in gone or id(node) in last
    ]
    set_nodes(proto.graph, nodes)
    _remove_unused_limits(proto.graph, found)
    raise_ir_version(proto, functions.IR_VERSION)
    if functions.DOMAIN not in get_opsets(proto):
        proto.opset_import.append(helper.make_opsetid(functions.DOMAIN, functions.VERSION))
    there = {f.name for f in proto.functions if f.domain == functions.DOMAIN}
    wanted = {turned.sparse_node.op_type for turned in found} - there
    proto.functions.extend(
        functions.make_function(name, get_standard_opset(proto)) for name in sorted(wanted)
    )
    new = OnnxModel(proto, model.weights, model.sparse)
    return replace(
        new, weights={name: a for name, a in model.weights.items() if name in new.tensors}
    ), found


def _remove_unused_limits(graph: GraphProto, found: Collection[ConvertedChain]) -> None:
    """Take out the limits that only the nodes that are gone have read."""
    limits = {
        name
        for turned in found
        for node in turned.nodes
        if is_standard(node, "Clip")
        for name in node.input[1:]
    }
    unused = limits - set(iter_read_names(graph))
    drop_inputs(graph, unused)
    set_initializers(graph, [t for t in graph.initializer if t.name not in unused])


def _find_chains(
    model: OnnxModel, proto: ModelProto, nodes: list[NodeProto], weight_names: Collection[str]
) -> list[ConvertedChain]:
    graph, opset = proto.graph, get_standard_opset(proto)
    view, known, shapes = GraphView(graph), collect_constants(graph), infer_shapes(proto)
    place = set(map(id, nodes))
    taken = set[int]()
    found = []

    def next_of(node: NodeProto) -> NodeProto | None:
        """The only reader of a node's result, if there is just one and it is of this graph."""
        users = view.consumers.get(node.output[0], [])
        alone = len(users) == 1 and view.read_counts[node.output[0]] == 1
        return (
            users[0].node
            if alone and id(users[0].node) in place and id(users[0].node) not in taken
            else None
        )

    for node in nodes:
        start = _start_chain(node, weight_names, known, shapes)
        if start is None or id(node) in taken:
            continue
        kernel, name, inputs, attributes = start
        chain = [node]
        following = next_of(node)
        if following is not None and is_standard(following, "Add"):
            other = (
                following.input[1] if following.input[0] == node.output[0] else following.input[0]
            )
            bias = name == "SparseMatMul" and _is_bias(other, known, shapes, node)
            if bias or (node.op_type == "Conv" and _has_same_shape(node.output[0], other, shapes)):
                name += "Bias" if bias else "Add"
                inputs = [*inputs, other]
                chain.append(following)
        following = next_of(chain[-1])
        if following is not None and is_standard(following, "Relu"):
            name += "Relu"
            chain.append(following)
        elif (
            following is not None
            and is_standard(following, "Clip")
            and functions.supports_clip(opset)
        ):
            limits = _read_limits(following, model, known, opset)
            if limits is not None:
                name += "Clip"
                attributes |= dict(zip(("min", "max"), limits, strict=True))
                chain.append(following)
        taken.update(map(id, chain))
        new = helper.make_node(
            name, inputs, [chain[-1].output[0]], node.name, domain=functions.DOMAIN, **attributes
        )
        found.append(ConvertedChain(kernel, tuple(chain), new))
    return found


def _start_chain(
    node: NodeProto, weight_names: Collection[str], known: Constants, shapes: Shapes
) -> tuple[str, str, list[str], dict[str, Any]] | None:
    """The kernel, operator, inputs and attributes of a node that can be turned over."""
    inputs = [name for name in node.input if name]  # a bias may be left out by name
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    bias = "Bias" if len(inputs) > 2 else ""

    def axes(name: str) -> int:
        tensor = known.get(name)
        return (
            len(tensor.dims)
            if isinstance(tensor, TensorProto) and tensor.data_type == TensorProto.FLOAT
            else 0
        )

    if is_standard(node, "Conv") and inputs[1] in weight_names and axes(inputs[1]) == 4:
        clear = _has_known_padding(attributes, known[inputs[1]].dims[2:])
        return (inputs[1], f"SparseConv{bias}", inputs, attributes) if clear else None
    if (
        is_standard(node, "Gemm")
        and inputs[1] in weight_names
        and axes(inputs[1]) == 2
        and not attributes.get("transA")
    ):
        attributes.pop("transA", None)
        columns = known[inputs[1]].dims[0 if attributes.get("transB") else 1]
        dims = shapes.get(inputs[2]) if bias else ()
        if dims is not None and (
            set(dims) <= {1} or (dims[-1] == columns and set(dims[:-1]) <= {1})
        ):
            return inputs[1], f"SparseGemm{bias}", inputs, attributes
    if is_standard(node, "MatMul"):
        if inputs[1] in weight_names and axes(inputs[1]) == 2 and shapes.get(inputs[0]):
            return inputs[1], "SparseMatMul", inputs, attributes
        if inputs[0] in weight_names and axes(inputs[0]) == 2 and shapes.get(inputs[1]):
            return inputs[0], "SparseLeftMatMul", inputs, attributes
    return None


def _has_known_padding(attributes: Mapping[str, Any], kernel_shape: Sequence[int]) -> bool:
    """Whether attributes say which pixels are read; SAME does not where a stride is larger than the kernel's reach."""
    strides, dilations = (attributes.get(name, (1, 1)) for name in ("strides", "dilations"))
    covers_all = all(
        s <= d * (k - 1) + 1 for s, d, k in zip(strides, dilations, kernel_shape, strict=True)
    )
    return covers_all or not attributes.get("auto_pad", b"").startswith(b"SAME")


def _is_bias(name: str, known: Constants, shapes: Shapes, node: NodeProto) -> bool:
    """Whether a value is one number for each column of a product's weights."""
    columns = known[node.input[1]].dims[1]
    return shapes.get(name) == (columns,)


def _has_same_shape(first: str, second: str, shapes: Shapes) -> bool:
    """Whether two values have the same shape for sure; a dimension without a name is not known."""
    ours, theirs = shapes.get(first), shapes.get(second)
    return ours is not None and ours == theirs and None not in ours


def _read_limits(
    node: NodeProto, model: OnnxModel, known: Constants, opset: int
) -> tuple[float, float] | None:
    """The limits of a Clip; None where they are not known, or where the caller may give others."""
    limits = [float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)]
    given = {value.name for value in model.graph.input}
    for i, name in enumerate(("min", "max")):
        if opset < functions.CLIP_INPUT_OPSET:
            limits[i] = float(get_attribute(node, name, limits[i]))
        elif len(node.input) > i + 1 and node.input[i + 1]:
            held = model.weights.get(node.input[i + 1])
            value = get_small_value(known, node.input[i + 1]) if held is None else held
            if value is None or value.size != 1 or node.input[i + 1] in given:
                return None
            limits[i] = float(value.reshape(()))
    return None if np.isnan(limits).any() else (limits[0], limits[1])


def infer_shapes(proto: ModelProto) -> dict[str, tuple[object, ...]]:
    """Shapes of values as far as they can be told; sizes are numbers, names, or None."""
    bare = copy_proto(proto)
    inferred: GraphProto = onnx.shape_inference.infer_shapes(bare, data_prop=True).graph
    found: dict[str, tuple[object, ...]] = {t.name: tuple(t.dims) for t in inferred.initializer}
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        if value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            found[value.name] = tuple(
                d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in dims
            )
    return found
