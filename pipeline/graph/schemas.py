"""Opsets of a model, and what the standard says about an operator in one of them.

A model imports operator sets by domain and version; the version decides which schema an operator
name refers to. onnxruntime also accepts two operators that the standard does not define in every
opset, so they count as version 1 where the standard has none.
"""

from functools import cache
from typing import Any

from onnx import FunctionProto, ModelProto, defs

from ltp_pipeline.graph.nodes import is_standard, iter_nodes, normalize_domain

ONNXRUNTIME_DOMAIN = "com.microsoft"
# Operators of the standard domain that onnxruntime accepts, and its optimizers write, in any opset.
ONNXRUNTIME_OPERATORS = ("LayerNormalization", "SimplifiedLayerNormalization")


def get_opsets(model: ModelProto | FunctionProto) -> dict[str, int]:
    """Return the version of each operator set that a model imports, by domain ("" is standard)."""
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = normalize_domain(entry.domain)
        versions[domain] = max(entry.version, versions.get(domain, 0))
    return versions


def get_standard_opset(model: ModelProto | FunctionProto, default: int = 1) -> int:
    """Return the version of the standard operator set that a model or function imports."""
    return get_opsets(model).get("", default)


@cache
def find_schema(name: str, opset: int, domain: str = "") -> defs.OpSchema | None:
    """Return the schema of an operator in an opset, or None if onnx does not define it there."""
    try:
        return defs.get_schema(name, opset, normalize_domain(domain))
    except defs.SchemaError:
        return None


@cache
def get_schema_version(name: str, opset: int, domain: str = "") -> int | None:
    """Return the opset in which an operator got its definition in an opset.

    Returns:
        The version, or None if neither onnx nor onnxruntime defines the operator there.
    """
    schema = find_schema(name, opset, domain)
    if schema is not None:
        return int(schema.since_version)
    is_added = name in ONNXRUNTIME_OPERATORS and normalize_domain(domain) == ""
    return 1 if is_added else None


@cache
def has_function_body(name: str, opset: int, domain: str = "") -> bool:
    """Return True if the standard defines an operator by a function of other operators."""
    schema: Any = find_schema(name, opset, domain)
    if schema is None:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def make_checkable(model: ModelProto) -> bool:
    """Change a copy of a model so that onnx's checker accepts what onnxruntime's optimizers write.

    Nodes that onnxruntime adds to the standard domain move into its own domain, which is imported
    if the model forgot to.

    Returns:
        True if the model had to be changed.
    """
    opset = get_standard_opset(model)
    added = [name for name in ONNXRUNTIME_OPERATORS if find_schema(name, opset) is None]
    has_changed = False
    uses_domain = False
    for node in iter_nodes(model.graph):
        if is_standard(node, *added):
            node.domain = ONNXRUNTIME_DOMAIN
            has_changed = True
        uses_domain = uses_domain or node.domain == ONNXRUNTIME_DOMAIN
    if uses_domain and ONNXRUNTIME_DOMAIN not in get_opsets(model):
        model.opset_import.add(domain=ONNXRUNTIME_DOMAIN, version=1)
        has_changed = True
    return has_changed
