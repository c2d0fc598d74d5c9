"""Find every reason why a model cannot be trained, without torch and without running it.

`inspect` and `run` give the same answer, so both call `find_problems`. Problems are collected,
not raised at the first one, so that a user sees all of them at once. They are of three kinds: a
single node cannot run; the model computes with quantized numbers or strings; or control flow
depends on the data, so that training could not follow it. Problems of the last two kinds remain
whatever rewrites are applied.
"""

from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from functools import cache
from typing import Any

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, defs

from ltp_pipeline.graph.constants import Constants, collect_constants, get_small_value
from ltp_pipeline.graph.nodes import (
    collect_names,
    format_node,
    format_nodes,
    get_subgraphs,
    is_standard,
    iter_nodes,
    normalize_domain,
)
from ltp_pipeline.graph.schemas import (
    get_opsets,
    get_schema_version,
    get_standard_opset,
    has_function_body,
)
from ltp_pipeline.graph.tensors import NUMBER_TYPES, TYPE_ATTRIBUTES, get_type_name
from ltp_pipeline.graph.view import find_dependent_values
from ltp_pipeline.stages.import_model import operators

OLDEST_OPSET = 7
MAX_ROUNDS = 10_000  # rounds of nested loops; more is not a network but an attack or a mistake
# Quantized operators, also by prefix, because the vendors' domains have dozens of them.
_QUANTIZED_OPERATORS = (
    "QuantizeLinear",
    "DequantizeLinear",
    "ConvInteger",
    "MatMulBnb4",
    "GatherBlockQuantized",
)
_QUANTIZED_PREFIXES = (
    "QLinear",
    "QGemm",
    "QAttention",
    "QEmbed",
    "QMoE",
    "DynamicQuantize",
    "MatMulNBits",
    "MatMulInteger",
)
_CONSTANT_ATTRIBUTES = ("value", "value_float", "value_floats", "value_int", "value_ints")


def find_problems(model: ModelProto) -> list[str]:
    """Return every reason why a flat model cannot be imported, one line each."""
    node_problems = _iter_node_problems(model.graph, get_opsets(model), {})
    return [*find_inherent_problems(model), *node_problems]


def find_inherent_problems(model: ModelProto) -> list[str]:
    """Return the problems that no implementation or rewrite can remove, one line each.

    These are inputs of strings, quantized nodes, and control flow that depends on the data.
    """
    inputs = collect_names(model.graph.input) - collect_names(model.graph.initializer)
    problems = []
    for value in model.graph.input:
        if value.name in inputs and value.type.tensor_type.elem_type == TensorProto.STRING:
            problems.append(f"input {value.name!r} holds strings; a network is trained on numbers")
    nodes = list(iter_nodes(model.graph))
    for function in model.functions:
        nodes += function.node
    quantized = [node for node in nodes if is_quantized(node.op_type)]
    if quantized:
        problems.append(
            f"{format_nodes(quantized)}: quantized weights and activations have no gradient; "
            "pass the model from before quantization"
        )
    if any(is_standard(node, "If", "Loop") for node in nodes):
        dependent = find_dependent_values(model.graph, inputs)
        problems += _iter_control_flow_problems(model.graph, dependent, {}, 1)
    return problems


def find_opset_problem(model: ModelProto) -> str | None:
    """Return why the opset of a model is not supported, or None if it is."""
    opset = get_standard_opset(model)
    newest = defs.onnx_opset_version()
    if OLDEST_OPSET <= opset <= newest:
        return None
    return f"the model uses opset {opset}; opsets {OLDEST_OPSET} to {newest} are supported"


def is_quantized(operator: str) -> bool:
    """Return True if an operator computes with quantized numbers, which have no gradient."""
    return operator in _QUANTIZED_OPERATORS or operator.startswith(_QUANTIZED_PREFIXES)


@cache
def find_operator_problem(name: str, opset: int, domain: str = "") -> str | None:
    """Return why no node of an operator can run in a model of an opset, or None if nodes can."""
    domain = normalize_domain(domain)
    version = get_schema_version(name, opset, domain)
    if version is None and domain == "":
        return "there is no such operator"
    if is_quantized(name):
        return "quantized numbers have no gradient"
    if operators.is_implemented(name, version or opset, domain):
        return None
    if version is None:
        return "operators of this domain are not supported"
    if has_function_body(name, opset, domain) or (name == "Constant" and domain == ""):
        return None
    return "no implementation"


def find_node_problem(node: NodeProto, opset: int) -> str | None:
    """Return why a node cannot run in a model of an opset, or None if it can.

    Only the node itself is looked at. onnx's checker has compared it with the operator's schema
    before; here it is compared with what is implemented.
    """
    domain = normalize_domain(node.domain)
    problem = find_operator_problem(node.op_type, opset, domain) or _find_type_problem(node)
    if problem is not None:
        return problem
    version = get_schema_version(node.op_type, opset, domain)
    if version is None:
        return _find_attribute_problem(node, domain)
    if is_standard(node, "Constant"):
        return find_constant_problem(node)
    has_graphs = any(attribute.type == AttributeProto.GRAPH for attribute in node.attribute)
    if has_graphs and not operators.is_implemented(node.op_type, version, domain):
        return "no implementation"  # a function body cannot pass on a nested graph
    return None


def find_constant_problem(node: NodeProto) -> str | None:
    """Return why the value of a Constant node cannot be read, or None if it can."""
    if len(node.attribute) != 1:
        return f"a constant has one value, this one {len(node.attribute)}"
    attribute = node.attribute[0]
    if attribute.name not in _CONSTANT_ATTRIBUTES:
        return f"a constant stored as {attribute.name} is not supported"
    if attribute.name == "value" and attribute.t.data_type not in NUMBER_TYPES:
        return f"a constant of type {get_type_name(attribute.t.data_type)} is not supported"
    return None


def _iter_node_problems(
    graph: GraphProto, opsets: Mapping[str, int], outer_types: MutableMapping[str, str]
) -> Iterator[str]:
    """Yield one line for each node that cannot run: operator, name, opset, domain and reason.

    Quantized nodes are left out, because one line of `find_inherent_problems` lists them all.
    `outer_types` are the unsupported types of values of the graphs around this one, by name.
    """
    types = ChainMap(_find_unsupported_types(graph), outer_types)
    for node in graph.node:
        domain = normalize_domain(node.domain)
        opset = opsets.get(domain, 1)
        problem = None
        if not is_quantized(node.op_type):
            problem = find_node_problem(node, opset)
        if problem is None and types:
            name = next((name for name in node.input if name in types), None)
            if name is not None:
                problem = f"input {name!r} has type {types[name]}, which is not supported"
        if problem is not None:
            yield f"{format_node(node)} (opset {opset}, domain {domain or 'ai.onnx'}): {problem}"
        for nested in get_subgraphs(node):
            yield from _iter_node_problems(nested, opsets, types)


def _find_unsupported_types(graph: GraphProto) -> dict[str, str]:
    """Return the types that torch does not have, by the names of inputs and initializers."""
    types: dict[str, str] = {}
    for tensor in graph.initializer:
        if tensor.data_type not in NUMBER_TYPES:
            types[tensor.name] = get_type_name(tensor.data_type)
    for sparse in graph.sparse_initializer:
        types[sparse.values.name] = "sparse tensor"
    for value in graph.input:
        kind = value.type.WhichOneof("value")
        if kind == "tensor_type":
            data_type = value.type.tensor_type.elem_type
            if data_type not in NUMBER_TYPES and data_type != TensorProto.UNDEFINED:
                types[value.name] = get_type_name(data_type)
        elif kind in ("sparse_tensor_type", "map_type", "opaque_type"):
            types[value.name] = kind.removesuffix("_type").replace("_", " ")
    return types


def _find_type_problem(node: NodeProto) -> str | None:
    """Return which attribute of a node has, or names, a type that torch does not have."""
    for attribute in node.attribute:
        name = attribute.name
        if attribute.type == AttributeProto.TENSOR and attribute.t.data_type not in NUMBER_TYPES:
            type_name = get_type_name(attribute.t.data_type)
            return f"attribute {name!r} has type {type_name}, which is not supported"
        names_type = name in TYPE_ATTRIBUTES and attribute.type == AttributeProto.INT
        if names_type and attribute.i and attribute.i not in NUMBER_TYPES:
            return f"type {get_type_name(attribute.i)} is not supported"
    return None


def _find_attribute_problem(node: NodeProto, domain: str) -> str | None:
    """Compare attributes with those of the implementation, for an operator unknown to onnx."""
    supported = operators.get_attributes(node.op_type, domain)
    names = {attribute.name for attribute in node.attribute}
    for name, is_required in supported.items():
        if is_required and name not in names:
            return f"attribute {name!r} is missing"
    unknown = sorted(names - supported.keys())
    if unknown:
        return f"attribute {unknown[0]!r} is not supported"
    return None


def _iter_control_flow_problems(
    graph: GraphProto,
    dependent: Collection[str],
    outer_constants: MutableMapping[str, Any],
    outer_rounds: int,
) -> Iterator[str]:
    """Yield one line for each If or Loop that training cannot follow.

    `outer_rounds` is the product of the rounds of the loops around the graph.
    """
    constants = ChainMap(collect_constants(graph), outer_constants)
    for node in graph.node:
        rounds = outer_rounds
        if is_standard(node, "If") and node.input and node.input[0] in dependent:
            yield (
                f"{format_node(node)}: its condition depends on the data; "
                "both branches cannot be trained at once"
            )
        elif is_standard(node, "Loop"):
            yield from _iter_loop_problems(node, dependent)
            rounds, problem = _count_rounds(node, constants, outer_rounds)
            if problem is not None:
                yield f"{format_node(node)}: {problem}"
        for nested in get_subgraphs(node):
            yield from _iter_control_flow_problems(nested, dependent, constants, rounds)


def _iter_loop_problems(node: NodeProto, dependent: Collection[str]) -> Iterator[str]:
    for name, role in zip(node.input, ("number of rounds", "condition"), strict=False):
        if name in dependent:
            yield f"{format_node(node)}: its {role} depends on the data"
    for body in get_subgraphs(node):
        if body.output and body.output[0].name in dependent:
            yield f"{format_node(node)}: the end of the loop depends on the data"


def _count_rounds(
    node: NodeProto, constants: Constants, outer_rounds: int
) -> tuple[int, str | None]:
    """Return the rounds of a loop times those around it, and a problem if these never end.

    A loop whose number of rounds the file does not tell counts as one round.
    """
    can_stop = _has_own_condition(node)
    if not any(node.input[:1]) and not can_stop:
        return outer_rounds, "a loop that never ends"
    value = None
    if node.input:
        value = get_small_value(constants, node.input[0])
    if value is None or value.size != 1:
        return outer_rounds, None
    rounds = outer_rounds * max(int(value.reshape(-1)[0]), 1)
    if rounds > MAX_ROUNDS and not can_stop:
        return outer_rounds, f"a loop of {rounds:,} rounds is beyond reason"
    return min(rounds, MAX_ROUNDS), None


def _has_own_condition(node: NodeProto) -> bool:
    """Return True if the body of a loop computes its condition, instead of passing it on.

    Exporters write "while" as a loop of the largest possible number of rounds.
    """
    body = next(iter(get_subgraphs(node)), None)
    if body is None or not body.output:
        return False
    passed = collect_names(body.input[1:2])
    for inner in body.node:
        if is_standard(inner, "Identity", "Constant", "Cast") and passed.issuperset(inner.input):
            passed.update(inner.output)
    return body.output[0].name not in passed
