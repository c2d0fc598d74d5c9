"""Why single nodes cannot run: no such operator, no implementation, attributes, inputs or types that do not fit."""

from collections.abc import Iterator, Mapping
from functools import cache

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from ltp_pipeline.graph.nodes import format_node, get_subgraphs, is_standard, normalize_domain
from ltp_pipeline.graph.schemas import Signature, get_opsets, signature
from ltp_pipeline.graph.tensors import NUMBER_TYPES, TYPE_ATTRIBUTES, get_type_name
from ltp_pipeline.stages.import_model import operators

# By prefix and suffix, because the vendors' own domains have dozens of these.
_QUANTISED_STARTS = (
    "QLinear",
    "QGemm",
    "QAttention",
    "QEmbed",
    "QMoE",
    "DynamicQuantize",
    "MatMulNBits",
    "MatMulInteger",
)
_QUANTISED = (
    "QuantizeLinear",
    "DequantizeLinear",
    "ConvInteger",
    "MatMulBnb4",
    "GatherBlockQuantized",
)
_CONSTANT_VALUES = {
    "value": AttributeProto.TENSOR,
    "value_float": AttributeProto.FLOAT,
    "value_floats": AttributeProto.FLOATS,
    "value_int": AttributeProto.INT,
    "value_ints": AttributeProto.INTS,
}


def is_quantized(operator: str) -> bool:
    """Whether an operator computes with quantised numbers, which have no gradient."""
    return operator in _QUANTISED or operator.startswith(_QUANTISED_STARTS)


def node_problems(model: ModelProto) -> list[str]:
    """One line for each node that cannot run: operator, name, opset, domain and the reason.

    Quantised nodes are left to untrainable.py, which tells of all of them in one line.
    """
    return list(_walk(model.graph, get_opsets(model), {}))


def _walk(
    graph: GraphProto, versions: Mapping[str, int], outer: Mapping[str, str]
) -> Iterator[str]:
    here = _unreadable(graph)
    unreadable = {**outer, **here} if here else outer
    for node in graph.node:
        domain = normalize_domain(node.domain)
        opset = versions.get(domain, 1)
        reason = None if is_quantized(node.op_type) else find_node_problem(node, opset)
        if reason is None and unreadable:
            name = next((n for n in node.input if n in unreadable), None)
            reason = name and f"input {name!r} has type {unreadable[name]}, which is not supported"
        if reason is not None:
            yield f"{format_node(node)} (opset {opset}, domain {domain or 'ai.onnx'}): {reason}"
        for nested in get_subgraphs(node):
            yield from _walk(nested, versions, unreadable)


def _unreadable(graph: GraphProto) -> dict[str, str]:
    """Names of inputs and initializers whose type torch does not have, each with that type."""
    found = {
        t.name: get_type_name(t.data_type)
        for t in graph.initializer
        if t.data_type not in NUMBER_TYPES
    }
    found |= {t.values.name: "sparse tensor" for t in graph.sparse_initializer}
    for value in graph.input:
        kind = value.type.WhichOneof("value")
        if kind == "tensor_type":
            data_type = value.type.tensor_type.elem_type
            if data_type not in NUMBER_TYPES and data_type != TensorProto.UNDEFINED:
                found[value.name] = get_type_name(data_type)
        elif kind in ("sparse_tensor_type", "map_type", "opaque_type"):
            found[value.name] = kind.removesuffix("_type").replace("_", " ")
    return found


def find_node_problem(node: NodeProto, opset: int) -> str | None:
    """Why a node cannot run in a model of this opset, if so; looks at the node alone."""
    domain = normalize_domain(node.domain)
    problem = find_operator_problem(node.op_type, opset, domain)
    if problem is not None:
        return problem
    known = signature(node.op_type, opset, domain)
    problem = _type_problem(node)
    if problem is None:
        problem = _unknown_to_onnx(node, domain) if known is None else _schema_problem(node, known)
    if problem is not None or known is None or not node.attribute:
        return problem
    if is_standard(node, "Constant"):
        return find_constant_problem(node)
    nests = any(a.type == AttributeProto.GRAPH for a in node.attribute)
    return (
        "no implementation"
        if nests and not operators.is_implemented(node.op_type, known.since, domain)
        else None
    )


@cache
def find_operator_problem(name: str, opset: int, domain: str = "") -> str | None:
    """Why no node of an operator can run in a model of this opset, if so."""
    domain = normalize_domain(domain)
    known = signature(name, opset, domain)
    if known is None and domain == "":
        return "there is no such operator"
    if is_quantized(name):
        return "quantised numbers have no gradient"
    if operators.is_implemented(name, opset if known is None else known.since, domain):
        return None
    if known is None:
        return "operators of this domain are not supported"
    return None if known.has_body or (name == "Constant" and domain == "") else "no implementation"


def find_constant_problem(node: NodeProto) -> str | None:
    """Why a Constant cannot be read, if so."""
    if len(node.attribute) != 1:
        return f"a constant has one value, this one {len(node.attribute)}"
    attribute = node.attribute[0]
    if attribute.name not in _CONSTANT_VALUES:
        return f"a constant given as {attribute.name} is not supported"
    if attribute.type != _CONSTANT_VALUES[attribute.name]:
        return f"attribute {attribute.name!r} has the wrong type"
    if attribute.name == "value" and attribute.t.data_type not in NUMBER_TYPES:
        return f"a constant of type {get_type_name(attribute.t.data_type)} is not supported"
    return None


def _type_problem(node: NodeProto) -> str | None:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR and attribute.t.data_type not in NUMBER_TYPES:
            return f"attribute {attribute.name!r} has type {get_type_name(attribute.t.data_type)}, which is not supported"
        is_type = attribute.name in TYPE_ATTRIBUTES and attribute.type == AttributeProto.INT
        if is_type and attribute.i and attribute.i not in NUMBER_TYPES:
            return f"type {get_type_name(attribute.i)} is not supported"
    return None


def _unknown_to_onnx(node: NodeProto, domain: str) -> str | None:
    """Compare the attributes with those of the implementation, where onnx has no schema."""
    known = operators.get_attributes(node.op_type, domain)
    given = {a.name for a in node.attribute}
    missing = [name for name, needed in known.items() if needed and name not in given]
    unknown = sorted(given - known.keys())
    if not missing and not unknown:
        return None
    return f"attribute {(missing or unknown)[0]!r} is {'missing' if missing else 'not supported'}"


def _schema_problem(node: NodeProto, known: Signature) -> str | None:
    given = {a.name for a in node.attribute}
    if len(given) != len(node.attribute):
        return "an attribute is given twice"
    for attribute in node.attribute:
        wanted = known.attributes.get(attribute.name)
        if wanted is None:
            return f"attribute {attribute.name!r} does not exist in version {known.since}"
        found = AttributeProto.AttributeType.Name(attribute.type)
        if wanted != found:
            return f"attribute {attribute.name!r} must be {wanted}, not {found}"
    missing = next((name for name in known.required if name not in given), None)
    if missing is not None:
        return f"attribute {missing!r} is missing"
    count = len(node.input)
    if not known.inputs[0] <= count <= known.inputs[1]:
        return f"{count} inputs where {known.inputs[0]} to {known.inputs[1]} are wanted"
    for slot, name in known.needed:
        if slot < count and not node.input[slot]:
            return f"input {name!r} is missing"
    if not known.outputs[0] <= len(node.output) <= known.outputs[1]:
        return (
            f"{len(node.output)} outputs where {known.outputs[0]} to {known.outputs[1]} are wanted"
        )
    return None
