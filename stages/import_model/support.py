"""Which operators can run, without importing torch and the code that runs them.

The table beside this module is written by `scripts/write_operators.py`, and a test compares it with the registry.
"""

from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, defs

from ltp_pipeline.stages.import_model.graphs import STANDARD_DOMAINS, is_standard, subgraphs

TABLE = "operators.txt"  # domain/name:version, the oldest schema version with an implementation


@cache
def table() -> dict[tuple[str, str], int]:
    """Oldest implemented version by (domain, name)."""
    found = {}
    for line in resources.files(__package__).joinpath(TABLE).read_text(encoding="utf-8").split():
        full, _, since = line.partition(":")
        domain, _, name = full.rpartition("/")
        found[domain, name] = int(since)
    return found


def problems(model: ModelProto) -> list[tuple[NodeProto, str]]:
    """Nodes whose operator cannot run, each with the reason."""
    versions = {_domain(o.domain): o.version for o in model.opset_import}
    return list(_walk(model.graph, versions))


def _walk(graph: GraphProto, versions: dict[str, int]) -> Iterator[tuple[NodeProto, str]]:
    for node in graph.node:
        reason = _problem(node, versions.get(_domain(node.domain), 1))
        if reason is not None:
            yield node, reason
        for nested in subgraphs(node):
            yield from _walk(nested, versions)


def _problem(node: NodeProto, opset: int) -> str | None:
    domain = _domain(node.domain)
    since = table().get((domain, node.op_type))
    try:
        schema: Any = defs.get_schema(node.op_type, opset, domain)
    except defs.SchemaError:
        if domain:
            return None if since is not None else "operators of this domain are not supported"
        return "there is no such operator"
    if is_standard(node, "Constant") or (since is not None and since <= schema.since_version):
        return None
    return None if schema.has_function or schema.has_context_dependent_function else "no implementation"


def _domain(domain: str) -> str:
    return "" if domain in STANDARD_DOMAINS else domain


def render() -> str:
    """The table as the registry has it now."""
    from ltp_pipeline.stages.import_model import network, registry  # noqa: F401 - the first fills the second

    oldest: dict[tuple[str, str], int] = {}
    for op in registry.all_ops():
        key = (op.domain, op.name)
        oldest[key] = min(op.since, oldest.get(key, op.since))
    words = [f"{domain}/{name}:{since}" if domain else f"{name}:{since}" for (domain, name), since in oldest.items()]
    lines = [""]
    for word in sorted(words):
        if len(lines[-1]) + len(word) > 110:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join([*lines, ""])
