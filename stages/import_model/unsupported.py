"""Everything in a model that stands in the way, at once and before anything runs."""

from collections.abc import Iterator, Mapping

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from ltp_pipeline.stages.import_model import nodes, registry


def unsupported_nodes(model: ModelProto) -> list[str]:
    """One line for each node that cannot run: operator, name, opset, domain and the reason."""
    versions = {registry.standard_domain(o.domain): o.version for o in model.opset_import}
    return list(_walk(model.graph, versions, {}))


def _walk(graph: GraphProto, versions: Mapping[str, int], outer: Mapping[str, str]) -> Iterator[str]:
    unreadable = {**outer, **nodes.tensor_types(graph)}
    for node in graph.node:
        domain = registry.standard_domain(node.domain)
        opset = versions.get(domain, 1)
        reason = nodes.node_problem(node, opset) or _input_problem(node, unreadable)
        if reason is not None:
            yield f"{node.op_type} {_name(node)!r} (opset {opset}, domain {domain or 'ai.onnx'}): {reason}"
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _walk(attribute.g, versions, unreadable)


def _name(node: NodeProto) -> str:
    return node.name or next(iter(node.output), "")


def _input_problem(node: NodeProto, unreadable: Mapping[str, str]) -> str | None:
    name = next((n for n in node.input if n in unreadable), None)
    return None if name is None else f"input {name!r} has type {unreadable[name]}, which is not supported"
