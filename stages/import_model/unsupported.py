"""What no operator can make trainable: quantised models, inputs of strings, control flow that depends on the data."""

from collections import ChainMap, defaultdict
from collections.abc import Collection, Iterable, Iterator, MutableMapping
from itertools import count
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from ltp_pipeline.graph.constants import Constants, collect_constants, get_small_value
from ltp_pipeline.graph.nodes import format_node, get_subgraphs, is_standard, iter_nodes
from ltp_pipeline.stages.import_model.node_problems import is_quantized

MOST_ROUNDS = 10_000  # of loops within each other; more is no network but an attack or a mistake
_NAMED = 4  # of many nodes that are quantised
# What these say about a value depends on its shape alone.
_SHAPE_ONLY = ("Shape", "Size", "SequenceLength", "OptionalHasElement")


def find_inherent_problems(model: ModelProto) -> list[str]:
    """One line for each thing that rules the model out, whatever operators are implemented."""
    initial = {t.name for t in model.graph.initializer}
    given = [value for value in model.graph.input if value.name not in initial]
    found = [
        f"input {value.name!r} holds strings; a network is trained on numbers"
        for value in given
        if value.type.tensor_type.elem_type == TensorProto.STRING
    ]
    quantised = [format_node(node) for node in _nodes(model) if is_quantized(node.op_type)]
    if quantised:
        more = f" and {len(quantised) - _NAMED} more" if len(quantised) > _NAMED else ""
        found.append(
            f"{', '.join(quantised[:_NAMED])}{more}: quantised weights and activations have no gradient; "
            "give the model from before quantisation"
        )
    if any(is_standard(node, "If", "Loop") for node in _nodes(model)):
        dependent = _dependent(model.graph, [value.name for value in given])
        found += _control_flow(model.graph, dependent, {}, 1)
    return found


def _nodes(model: ModelProto) -> Iterator[NodeProto]:
    yield from iter_nodes(model.graph)
    yield from (node for function in model.functions for node in function.node)


def _dependent(graph: GraphProto, data: Iterable[str]) -> set[str]:
    """Names of the values that depend on the data: all that can be reached from it, each looked at once."""
    targets: dict[str | int, list[str | int]] = defaultdict(list)
    for source, target in _flows(graph, count()):
        targets[source].append(target)
    reached: set[str | int] = set(data)
    ahead = list(reached)
    while ahead:
        new = [target for target in targets.get(ahead.pop(), ()) if target not in reached]
        reached.update(new)
        ahead += new
    return {name for name in reached if isinstance(name, str)}


def _flows(graph: GraphProto, numbers: Iterator[int]) -> Iterator[tuple[str | int, str | int]]:
    """From which value to which the data goes on; a number stands for a node, between its inputs and its outputs."""
    for node, number in zip(graph.node, numbers, strict=False):
        yield from ((name, number) for name in node.input if name)
        for nested in get_subgraphs(node):
            is_loop = is_standard(node, "Loop")
            passed = (
                ["", "", *node.input[2:]] if is_loop else list(node.input)[-len(nested.input) :]
            )
            yield from (
                (name, i.name) for i, name in zip(nested.input, passed, strict=False) if name
            )
            yield from _flows(nested, numbers)
            yield from ((o.name, number) for o in nested.output)
            if is_loop:  # what a round puts out, the next one takes in
                carried = zip(list(nested.input)[2:], list(nested.output)[1:], strict=False)
                yield from ((o.name, i.name) for i, o in carried)
        if not is_standard(node, *_SHAPE_ONLY):
            yield from ((number, o) for o in node.output if o)


def _control_flow(
    graph: GraphProto, dependent: set[str], outer: MutableMapping[str, Any], rounds: int
) -> Iterator[str]:
    """Complain where a value that depends on the data decides what runs."""
    known = ChainMap(collect_constants(graph), outer)
    for node in graph.node:
        inner = rounds
        if is_standard(node, "If") and node.input and node.input[0] in dependent:
            yield f"{format_node(node)}: its condition depends on the data; both branches cannot be trained at once"
        elif is_standard(node, "Loop"):
            yield from _loop_problems(node, dependent)
            inner, problem = _rounds(node, known, rounds)
            if problem is not None:
                yield problem
        for nested in get_subgraphs(node):
            yield from _control_flow(nested, dependent, known, inner)


def _loop_problems(node: NodeProto, dependent: Collection[str]) -> Iterator[str]:
    for slot, what in enumerate(("number of rounds", "condition")):
        if len(node.input) > slot and node.input[slot] in dependent:
            yield f"{format_node(node)}: its {what} depends on the data"
    for body in get_subgraphs(node):
        if body.output and body.output[0].name in dependent:
            yield f"{format_node(node)}: whether it goes on depends on the data"


def _rounds(node: NodeProto, known: Constants, outer: int) -> tuple[int, str | None]:
    """Rounds of a loop and of those around it, as far as the file tells."""
    if not any(node.input[:1]) and not _may_stop(node):
        return outer, f"{format_node(node)}: a loop that never ends"
    value = get_small_value(known, node.input[0]) if node.input else None
    if value is None or value.size != 1:
        return outer, None
    total = outer * max(int(value.reshape(-1)[0]), 1)
    if total > MOST_ROUNDS and not _may_stop(node):
        return outer, f"{format_node(node)}: a loop of {total:,} rounds is beyond reason"
    return min(total, MOST_ROUNDS), None


def _may_stop(node: NodeProto) -> bool:
    """Whether the body computes its condition; exporters write the largest integer for "while"."""
    body = next(iter(get_subgraphs(node)), None)
    if body is None or not body.output:
        return False
    passed = {body.input[1].name} if len(body.input) > 1 else set()
    for inner in body.node:
        if is_standard(inner, "Identity", "Constant", "Cast") and passed.issuperset(inner.input):
            passed.update(inner.output)
    return body.output[0].name not in passed
