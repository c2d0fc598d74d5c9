"""What is understood but refused: weights that cannot be trained, inputs that are no numbers, control flow on data."""

from collections.abc import Collection, Iterator

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from ltp_pipeline.stages.import_model.graphs import (
    Constants,
    constants,
    every_node,
    is_standard,
    label,
    small_value,
    subgraphs,
)

MOST_ROUNDS = 10_000  # of loops within each other; more is no network but an attack or a mistake
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
_QUANTISED = ("QuantizeLinear", "DequantizeLinear", "ConvInteger", "MatMulBnb4", "GatherBlockQuantized")
_NAMED = 4  # of many nodes that are quantised
_MOST_PASSES = 20  # marks that still spread after so many rounds cannot be in an honest loop
# What these say about a value depends on its shape alone.
_SHAPE_ONLY = ("Shape", "Size", "SequenceLength", "OptionalHasElement")


def refusals(model: ModelProto) -> list[str]:
    """One line for each thing that rules the model out, whatever operators are implemented."""
    initial = {t.name for t in model.graph.initializer}
    reasons = []
    for value in model.graph.input:
        if value.type.tensor_type.elem_type == TensorProto.STRING and value.name not in initial:
            reasons.append(f"input {value.name!r} holds strings; a network is trained on numbers")
    nodes = (*every_node(model.graph), *(node for function in model.functions for node in function.node))
    quantised = [label(node) for node in nodes if _is_quantised(node)]
    if quantised:
        more = f" and {len(quantised) - _NAMED} more" if len(quantised) > _NAMED else ""
        reasons.append(
            f"{', '.join(quantised[:_NAMED])}{more}: quantised weights and activations have no gradient; "
            "give the model from before quantisation"
        )
    tainted = {value.name for value in model.graph.input if value.name not in initial}
    for _ in range(_MOST_PASSES):
        before = len(tainted)
        _spread(model.graph, tainted)
        if len(tainted) == before:
            break
    return reasons + list(_control_flow(model.graph, tainted, {}, 1))


def _is_quantised(node: NodeProto) -> bool:
    return node.op_type in _QUANTISED or node.op_type.startswith(_QUANTISED_STARTS)


def _spread(graph: GraphProto, tainted: set[str]) -> None:
    """One pass of marking the values that depend on the data; a loop carries marks over to its next round."""
    for node in graph.node:
        dirty = any(name in tainted for name in node.input)
        for nested in subgraphs(node):
            passed = ["", "", *node.input[2:]] if is_standard(node, "Loop") else list(node.input)[-len(nested.input) :]
            tainted.update(i.name for i, name in zip(nested.input, passed, strict=False) if name in tainted)
            _spread(nested, tainted)
            if is_standard(node, "Loop"):
                carried = zip(list(nested.input)[2:], list(nested.output)[1:], strict=False)
                tainted.update(i.name for i, o in carried if o.name in tainted)
            dirty = dirty or any(o.name in tainted for o in nested.output)
        if dirty and not is_standard(node, *_SHAPE_ONLY):
            tainted.update(o for o in node.output if o)


def _control_flow(graph: GraphProto, tainted: set[str], outer: Constants, rounds: int) -> Iterator[str]:
    """Complain where a value that depends on the data decides what runs."""
    known = {**outer, **constants(graph)}
    for node in graph.node:
        inner = rounds
        if is_standard(node, "If") and node.input and node.input[0] in tainted:
            yield f"{label(node)}: its condition depends on the data; both branches cannot be trained at once"
        elif is_standard(node, "Loop"):
            yield from _loop_problems(node, tainted)
            inner, problem = _rounds(node, known, rounds)
            if problem is not None:
                yield problem
        for nested in subgraphs(node):
            yield from _control_flow(nested, tainted, known, inner)


def _loop_problems(node: NodeProto, tainted: Collection[str]) -> Iterator[str]:
    for slot, what in enumerate(("number of rounds", "condition")):
        if len(node.input) > slot and node.input[slot] in tainted:
            yield f"{label(node)}: its {what} depends on the data"
    for body in subgraphs(node):
        if body.output and body.output[0].name in tainted:
            yield f"{label(node)}: whether it goes on depends on the data"


def _rounds(node: NodeProto, known: Constants, outer: int) -> tuple[int, str | None]:
    """Rounds of a loop and of those around it, as far as the file tells."""
    if not any(node.input[:1]) and not _may_stop(node):
        return outer, f"{label(node)}: a loop that never ends"
    value = small_value(known, node.input[0]) if node.input else None
    if value is None or value.size != 1:
        return outer, None
    total = outer * max(int(value.reshape(-1)[0]), 1)
    if total > MOST_ROUNDS and not _may_stop(node):
        return outer, f"{label(node)}: a loop of {total:,} rounds is beyond reason"
    return min(total, MOST_ROUNDS), None


def _may_stop(node: NodeProto) -> bool:
    """Whether the body computes its condition; exporters write the largest integer for "while"."""
    body = next(subgraphs(node), None)
    if body is None or not body.output:
        return False
    passed = {body.input[1].name} if len(body.input) > 1 else set()
    for inner in body.node:
        if is_standard(inner, "Identity", "Constant", "Cast") and passed.issuperset(inner.input):
            passed.update(inner.output)
    return body.output[0].name not in passed
