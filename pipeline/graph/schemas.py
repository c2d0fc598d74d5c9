"""Opsets of a model, and what the standard says about an operator in one of them."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from onnx import FunctionProto, ModelProto, defs

from ltp_pipeline.graph.nodes import STANDARD_DOMAINS, is_standard, iter_nodes, normalize_domain

ONNXRUNTIME_DOMAIN = "com.microsoft"


def get_opsets(model: ModelProto | FunctionProto) -> dict[str, int]:
    """The version of each operator set that a model imports, by domain; "" is the standard one."""
    found: dict[str, int] = {}
    for entry in model.opset_import:
        domain = normalize_domain(entry.domain)
        found[domain] = max(entry.version, found.get(domain, 0))
    return found


def get_opset(model: ModelProto | FunctionProto, domain: str, default: int = 1) -> int:
    """The version of one operator set that a model imports."""
    return get_opsets(model).get(normalize_domain(domain), default)


def get_standard_opset(model: ModelProto) -> int:
    """The version of the standard operator set that a model imports."""
    return max((o.version for o in model.opset_import if o.domain in STANDARD_DOMAINS), default=1)


@cache
def find_schema(name: str, opset: int, domain: str = "") -> defs.OpSchema | None:
    """The schema that a model of this opset means by `name`, or None where there is no such operator."""
    try:
        return defs.get_schema(name, opset, normalize_domain(domain))
    except defs.SchemaError:
        return None


@dataclass(frozen=True)
class Signature:
    """What a schema says about the nodes of an operator, as plain values: onnx makes new objects at every look."""

    since: int
    has_body: bool  # the standard defines the operator by a function
    attributes: dict[str, str]  # name → kind, as AttributeProto.AttributeType spells it
    required: tuple[str, ...]  # attributes that must be given
    inputs: tuple[int, int]  # fewest and most
    outputs: tuple[int, int]
    needed: tuple[tuple[int, str], ...]  # inputs that may not be left empty: position and name


@cache
def signature(name: str, opset: int, domain: str = "") -> Signature | None:
    """The signature of an operator in this opset, or None where there is no such operator."""
    schema: Any = find_schema(name, opset, domain)  # whose stubs lack what is asked of it here
    if schema is None:
        return _added().get(name) if normalize_domain(domain) == "" else None
    known = schema.attributes
    single = defs.OpSchema.FormalParameterOption.Single
    return Signature(
        since=int(schema.since_version),
        has_body=bool(schema.has_function or schema.has_context_dependent_function),
        attributes={name: found.type.name for name, found in known.items()},
        required=tuple(name for name, found in known.items() if found.required),
        inputs=(schema.min_input, schema.max_input),
        outputs=(schema.min_output, schema.max_output),
        needed=tuple(
            (i, formal.name) for i, formal in enumerate(schema.inputs) if formal.option == single
        ),
    )


@cache
def _added() -> dict[str, Signature]:
    """Operators that onnxruntime has in the standard domain, and its optimisers write, in opsets that do not."""
    norm = signature("LayerNormalization", 17)
    if norm is None:
        return {}
    simplified = replace(norm, since=1, has_body=False, inputs=(2, 2), outputs=(1, 2))
    return {
        "LayerNormalization": replace(norm, since=1, has_body=False),
        "SimplifiedLayerNormalization": simplified,
    }


def make_checkable(model: ModelProto) -> bool:
    """Let onnx's checker pass what onnxruntime's optimisers write; for a copy that is only checked.

    Nodes that onnxruntime adds to the standard domain move into its own, which is imported where a file forgot to.
    Whether anything had to be changed.
    """
    opset = get_standard_opset(model)
    added = [name for name in _added() if find_schema(name, opset) is None]
    moved = used = False
    for node in iter_nodes(model.graph):
        if is_standard(node, *added):
            node.domain = ONNXRUNTIME_DOMAIN
            moved = True
        used = used or node.domain == ONNXRUNTIME_DOMAIN
    if missing := used and ONNXRUNTIME_DOMAIN not in get_opsets(model):
        model.opset_import.add(domain=ONNXRUNTIME_DOMAIN, version=1)
    return moved or missing
