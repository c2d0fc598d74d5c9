"""Single nodes: what their attributes say, and what is wrong with a node before anything runs."""

from collections.abc import Sequence
from typing import Any

import onnx
import torch
from onnx import AttributeProto, NodeProto, TensorProto, defs
from torch import Tensor

from ltp_pipeline.stages.import_model import functions, registry
from ltp_pipeline.stages.import_model.tensors import TORCH_TYPES, to_torch, type_name

_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_datatype", "output_dtype", "stash_type", "softmax_precision"})
_CONSTANT_VALUES = {
    "value": AttributeProto.TENSOR,
    "value_float": AttributeProto.FLOAT,
    "value_floats": AttributeProto.FLOATS,
    "value_int": AttributeProto.INT,
    "value_ints": AttributeProto.INTS,
}


def label(node: NodeProto) -> str:
    """How messages call a node: its operator and its name, or its first output where it has no name."""
    return f"{node.op_type} {node.name or next(iter(node.output), '')!r}"


def is_standard(node: NodeProto, op_type: str) -> bool:
    """Whether a node is this operator of the standard's own domain."""
    return node.op_type == op_type and node.domain in registry.STANDARD_DOMAINS


def is_tensor_constant(node: NodeProto) -> bool:
    """Whether a node is a Constant that holds a numeric tensor."""
    return is_standard(node, "Constant") and len(node.output) == 1 and constant_problem(node) is None


def attribute_value(attribute: AttributeProto) -> Any:
    """Attribute as a Python value: text decoded, tensors as torch tensors, lists as lists."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if attribute.type == AttributeProto.TENSOR:
        return to_torch(value)
    if attribute.type == AttributeProto.STRINGS:
        return [text.decode("utf-8", "replace") for text in value]
    if isinstance(value, Sequence):
        return list(value)
    return value


def constant_value(node: NodeProto) -> Tensor:
    """The tensor that a Constant node stands for."""
    problem = constant_problem(node)
    if problem is not None:
        raise ValueError(problem)
    attribute = node.attribute[0]
    value = attribute_value(attribute)
    if isinstance(value, Tensor):
        return value
    return torch.tensor(value, dtype=torch.float32 if "float" in attribute.name else torch.int64)


def constant_problem(node: NodeProto) -> str | None:
    """Why a Constant cannot be read, if so."""
    if len(node.attribute) != 1:
        return f"a constant has one value, this one {len(node.attribute)}"
    attribute = node.attribute[0]
    if attribute.name not in _CONSTANT_VALUES:
        return f"a constant given as {attribute.name} is not supported"
    if attribute.type != _CONSTANT_VALUES[attribute.name]:
        return f"attribute {attribute.name!r} has the wrong type"
    if attribute.name == "value" and attribute.t.data_type not in TORCH_TYPES:
        return f"a constant of type {type_name(attribute.t.data_type)} is not supported"
    return None


def node_problem(node: NodeProto, opset: int) -> str | None:
    """Why a node cannot run in a model of this opset, if so; looks at the node alone."""
    domain = registry.standard_domain(node.domain)
    schema = registry.schema_of(node.op_type, opset, domain)
    op = registry.find(node.op_type, opset, domain)
    if schema is None and op is None:
        return "there is no such operator" if domain == "" else "operators of this domain are not supported"
    has_graph = any(a.type == AttributeProto.GRAPH for a in node.attribute)
    if op is None and not is_standard(node, "Constant") and (has_graph or not functions.has_body(schema)):
        return "no implementation"
    wrong = _type_problem(node)
    if wrong is None and schema is not None:
        wrong = _schema_problem(node, schema)
    elif wrong is None and op is not None:
        given = {a.name for a in node.attribute}
        missing = [name for name, needed in op.attributes.items() if needed and name not in given]
        unknown = given - op.attributes.keys()
        if missing or unknown:
            wrong = f"attribute {(missing or sorted(unknown))[0]!r} is {'missing' if missing else 'not supported'}"
    return wrong or (constant_problem(node) if is_standard(node, "Constant") else None)


def _type_problem(node: NodeProto) -> str | None:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR and attribute.t.data_type not in TORCH_TYPES:
            return f"attribute {attribute.name!r} has type {type_name(attribute.t.data_type)}, which is not supported"
        is_type = attribute.name in _TYPE_ATTRIBUTES and attribute.type == AttributeProto.INT
        if is_type and attribute.i and attribute.i not in TORCH_TYPES:
            return f"type {type_name(attribute.i)} is not supported"
    return None


def _schema_problem(node: NodeProto, schema: Any) -> str | None:
    known = schema.attributes
    given = {a.name for a in node.attribute}
    if len(given) != len(node.attribute):
        return "an attribute is given twice"
    for attribute in node.attribute:
        if attribute.name not in known:
            return f"attribute {attribute.name!r} does not exist in version {schema.since_version}"
        wanted, found = known[attribute.name].type.name, AttributeProto.AttributeType.Name(attribute.type)
        if wanted != found:
            return f"attribute {attribute.name!r} must be {wanted}, not {found}"
    missing = next((name for name, a in known.items() if a.required and name not in given), None)
    if missing is not None:
        return f"attribute {missing!r} is missing"
    if not schema.min_input <= len(node.input) <= schema.max_input:
        return f"{len(node.input)} inputs where {schema.min_input} to {schema.max_input} are wanted"
    for formal, name in zip(schema.inputs, node.input, strict=False):
        if formal.option == defs.OpSchema.FormalParameterOption.Single and not name:
            return f"input {formal.name!r} is missing"
    if not schema.min_output <= len(node.output) <= schema.max_output:
        return f"{len(node.output)} outputs where {schema.min_output} to {schema.max_output} are wanted"
    return None


def tensor_types(graph: onnx.GraphProto) -> dict[str, str]:
    """Names of inputs and initializers whose type torch does not have, each with that type."""
    found = {t.name: type_name(t.data_type) for t in graph.initializer if t.data_type not in TORCH_TYPES}
    found |= {t.values.name: "sparse tensor" for t in graph.sparse_initializer}
    for value in graph.input:
        kind = value.type.WhichOneof("value")
        if kind == "tensor_type" and value.type.tensor_type.elem_type not in TORCH_TYPES:
            if value.type.tensor_type.elem_type != TensorProto.UNDEFINED:
                found[value.name] = type_name(value.type.tensor_type.elem_type)
        elif kind in ("sparse_tensor_type", "map_type", "opaque_type"):
            found[value.name] = kind.removesuffix("_type").replace("_", " ")
    return found
