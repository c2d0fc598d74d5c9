"""Large models of many kinds, made of small nodes; the argument is about how many nodes and tensors they have."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

WIDTH = 4


def chain(nodes: int) -> ModelProto:
    """Add and Relu in turn, after one layer with weights."""
    return _model([_small(i) for i in range(nodes)])


def constants(nodes: int) -> ModelProto:
    """The same with a tenth of the nodes Constants, and an If with a constant condition at every thousandth."""
    made: list[NodeProto] = []
    for i in range(nodes * 9 // 10):
        if i % 9 == 0:
            value = numpy_helper.from_array(np.full(WIDTH, i, np.float32))
            made.append(helper.make_node("Constant", [], [f"c{i}"], value=value))
        if i % 1000 == 500:
            made.append(_constant_if(i))
        else:
            made.append(_small(i, f"c{i - i % 9}"))
    return _model(made)


def statistics(nodes: int) -> ModelProto:
    """Every tenth node a BatchNormalization, and all of them share one tensor as mean."""
    shared = ["scale", "bias", "bias", "scale"]
    norms = (
        helper.make_node("BatchNormalization", [f"v{i}", *shared], [f"v{i + 1}"])
        for i in range(nodes)
    )
    return _model(
        [_small(i) if i % 10 else norm for i, norm in enumerate(norms)], ("scale", "bias")
    )


def branches(nodes: int) -> ModelProto:
    """A third of the nodes are If, all of one name, each with a node in both branches."""
    return _model([_constant_if(i, "if") for i in range(nodes // 3)])


def open_branches(nodes: int) -> ModelProto:
    """The same with a condition that a shape decides."""
    condition = [
        helper.make_node("Size", ["v0"], ["size"]),
        helper.make_node("Cast", ["size"], ["open"], to=9),
    ]
    return _model([*condition, *(_constant_if(i, f"if{i}", "open") for i in range(nodes // 3))])


def nested(nodes: int, depth: int = 12) -> ModelProto:
    """If within If, with nodes on every level."""
    each = nodes // depth

    def level(at: int) -> GraphProto:
        chain = [
            helper.make_node("Relu", [f"d{at}_{j}" if j else "v0"], [f"d{at}_{j + 1}"])
            for j in range(each)
        ]
        inner = (
            {"then_branch": level(at + 1), "else_branch": _branch("Neg", "v0", f"e{at}")}
            if at < depth
            else {}
        )
        end = (
            helper.make_node("If", ["yes"], [f"d{at}"], **inner)
            if inner
            else _identity(chain[-1].output[0], f"d{at}")
        )
        return helper.make_graph([*chain, end], f"level{at}", [], [_value(f"d{at}")])

    return _model(
        [
            helper.make_node(
                "If", ["yes"], ["v1"], then_branch=level(1), else_branch=_branch("Neg", "v0", "e")
            )
        ]
    )


def norms(nodes: int) -> ModelProto:
    """BatchNormalizations of one name, which share all their tensors."""
    inputs = ["scale", "bias", "bias", "scale"]
    made = [
        helper.make_node("BatchNormalization", [f"v{i}", *inputs], [f"v{i + 1}"], name="bn")
        for i in range(nodes)
    ]
    return _model(made, ("scale", "bias"))


def own_norms(nodes: int) -> ModelProto:
    """BatchNormalizations with four tensors each: a fifth of `nodes` are nodes."""
    kinds, ones = ("scale", "bias", "mean", "variance"), np.ones(WIDTH, np.float32)
    made = [
        helper.make_node(
            "BatchNormalization", [f"v{i}", *(f"{kind}{i}" for kind in kinds)], [f"v{i + 1}"]
        )
        for i in range(nodes // 5)
    ]
    return _model(made, tensors={f"{kind}{i}": ones for i in range(len(made)) for kind in kinds})


def tensors(nodes: int) -> ModelProto:
    """Initializers that nothing reads."""
    return _model([_small(0)], tensors={f"t{i}": np.ones(2, np.float32) for i in range(nodes)})


def added(nodes: int) -> ModelProto:
    """Half of it nodes, each of which adds a tensor of its own."""
    made = [helper.make_node("Add", [f"v{i}", f"t{i}"], [f"v{i + 1}"]) for i in range(nodes // 2)]
    return _model(made, tensors={f"t{i}": np.ones(WIDTH, np.float32) for i in range(len(made))})


def fan_out(nodes: int) -> ModelProto:
    """One value that all nodes read, and one node that reads what they make."""
    made = [helper.make_node("Relu", ["v0"], [f"r{i}"]) for i in range(nodes)]
    return _model([*made, helper.make_node("Sum", [node.output[0] for node in made], ["v1"])])


def outputs(nodes: int) -> ModelProto:
    """Every value is an output of the graph and has a value_info besides."""
    model = _model([_small(i) for i in range(nodes)])
    model.graph.value_info.extend(_value(f"v{i}") for i in range(nodes))
    model.graph.output.extend(_value(f"v{i}") for i in range(nodes))
    return model


def functions(nodes: int) -> ModelProto:
    """Functions of one node, of which onnx allows some thousands; most of `nodes` are calls."""
    opset = [helper.make_opsetid("", 17)]
    body = [helper.make_node("Relu", ["a"], ["b"])]
    made = [
        helper.make_function("local", f"f{i}", ["a"], ["b"], body, opset)
        for i in range(nodes // 50)
    ]
    calls = (made[i % len(made)].name for i in range(nodes))
    model = _model(
        [
            helper.make_node(name, [f"v{i}"], [f"v{i + 1}"], domain="local")
            for i, name in enumerate(calls)
        ]
    )
    model.functions.extend(made)
    model.opset_import.add(domain="local", version=1)
    return model


def reversed_chain(nodes: int) -> ModelProto:
    """A chain whose last node comes first."""
    model = chain(nodes)
    turned = GraphProto(node=list(model.graph.node)[::-1])
    model.graph.ClearField("node")
    model.graph.node.MergeFrom(turned.node)
    return model


def long_name(characters: int) -> ModelProto:
    """A name of so many characters, in three places."""
    name = "n" * characters
    node = helper.make_node("Add", ["v0", name], ["v1"], name=name)
    return _model([node], tensors={name: np.ones(WIDTH, np.float32)})


def _small(i: int, other: str = "one") -> NodeProto:
    inputs = [f"v{i}", other] if i % 2 else [f"v{i}"]
    return helper.make_node("Add" if i % 2 else "Relu", inputs, [f"v{i + 1}"], name=f"n{i}")


def _identity(source: str, target: str) -> NodeProto:
    return helper.make_node("Identity", [source], [target])


def _value(name: str) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", WIDTH])


def _branch(op: str, source: str, name: str) -> GraphProto:
    return helper.make_graph([helper.make_node(op, [source], [name])], op, [], [_value(name)])


def _constant_if(i: int, name: str = "", condition: str = "yes") -> NodeProto:
    both = {
        "then_branch": _branch("Relu", f"v{i}", "inner"),
        "else_branch": _branch("Neg", f"v{i}", "inner"),
    }
    return helper.make_node("If", [condition], [f"v{i + 1}"], name=name or f"if{i}", **both)


def _model(
    nodes: list[NodeProto],
    vectors: tuple[str, ...] = (),
    tensors: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> ModelProto:
    first = helper.make_node("MatMul", ["x", "weight"], ["v0"], name="first")
    arrays = {
        "weight": np.eye(WIDTH, dtype=np.float32),
        "one": np.ones(1, np.float32),
        "yes": np.array(True),
        **{name: np.ones(WIDTH, np.float32) for name in vectors},
        **(tensors or {}),
    }
    graph = helper.make_graph(
        [first, *nodes],
        "large",
        [_value("x")],
        [_value(nodes[-1].output[0])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


GRAPHS: dict[str, Callable[[int], ModelProto]] = {
    "chain": chain,
    "constants": constants,
    "statistics": statistics,
    "branches": branches,
    "open_branches": open_branches,
    "nested": nested,
    "norms": norms,
    "own_norms": own_norms,
    "tensors": tensors,
    "added": added,
    "fan_out": fan_out,
    "outputs": outputs,
    "functions": functions,
    "reversed_chain": reversed_chain,
}
