"""Make large models of many kinds from small nodes.

The argument is approximately the number of nodes and tensors.
"""

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


def make_chain(nodes: int) -> ModelProto:
    """Return a chain of Add and Relu after a layer with weights."""
    return _make_model([_small_node(i) for i in range(nodes)])


def make_constants(nodes: int) -> ModelProto:
    """Return a chain in which a tenth of the nodes are Constants.

    Every thousandth node is an If with a constant condition.
    """
    protos: list[NodeProto] = []
    for i in range(nodes * 9 // 10):
        if i % 9 == 0:
            value = numpy_helper.from_array(np.full(WIDTH, i, np.float32))
            protos.append(helper.make_node("Constant", [], [f"c{i}"], value=value))
        if i % 1000 == 500:
            protos.append(_constant_if(i))
        else:
            protos.append(_small_node(i, f"c{i - i % 9}"))
    return _make_model(protos)


def make_shared_statistics(nodes: int) -> ModelProto:
    """Return a chain with a BatchNormalization every ten nodes; all share their tensors."""
    shared = ["scale", "bias", "bias", "scale"]
    norms = (
        helper.make_node("BatchNormalization", [f"v{i}", *shared], [f"v{i + 1}"])
        for i in range(nodes)
    )
    return _make_model(
        [_small_node(i) if i % 10 else norm for i, norm in enumerate(norms)], ("scale", "bias")
    )


def make_branches(nodes: int) -> ModelProto:
    """Return a chain of If nodes of one name, with a node in each branch: `nodes` in total."""
    return _make_model([_constant_if(i, "if") for i in range(nodes // 3)])


def make_open_branches(nodes: int) -> ModelProto:
    """Return a chain of If nodes whose condition depends on a shape."""
    condition = [
        helper.make_node("Size", ["v0"], ["size"]),
        helper.make_node("Cast", ["size"], ["open"], to=9),
    ]
    return _make_model(
        [*condition, *(_constant_if(i, f"if{i}", "open") for i in range(nodes // 3))]
    )


def make_nested_branches(nodes: int, depth: int = 12) -> ModelProto:
    """Return nested If nodes, with a chain of nodes on every level."""
    nodes_per_level = nodes // depth

    def make_level(at: int) -> GraphProto:
        chain = [
            helper.make_node("Relu", [f"d{at}_{j}" if j else "v0"], [f"d{at}_{j + 1}"])
            for j in range(nodes_per_level)
        ]
        inner = (
            {"then_branch": make_level(at + 1), "else_branch": _make_branch("Neg", "v0", f"e{at}")}
            if at < depth
            else {}
        )
        end = (
            helper.make_node("If", ["yes"], [f"d{at}"], **inner)
            if inner
            else _identity_node(chain[-1].output[0], f"d{at}")
        )
        return helper.make_graph([*chain, end], f"level{at}", [], [_make_value(f"d{at}")])

    return _make_model(
        [
            helper.make_node(
                "If",
                ["yes"],
                ["v1"],
                then_branch=make_level(1),
                else_branch=_make_branch("Neg", "v0", "e"),
            )
        ]
    )


def make_norms(nodes: int) -> ModelProto:
    """Return BatchNormalization nodes of one name that share their tensors."""
    inputs = ["scale", "bias", "bias", "scale"]
    protos = [
        helper.make_node("BatchNormalization", [f"v{i}", *inputs], [f"v{i + 1}"], name="bn")
        for i in range(nodes)
    ]
    return _make_model(protos, ("scale", "bias"))


def make_own_norms(nodes: int) -> ModelProto:
    """Return BatchNormalization nodes with four tensors each; a fifth of `nodes` are nodes."""
    kinds, ones = ("scale", "bias", "mean", "variance"), np.ones(WIDTH, np.float32)
    protos = [
        helper.make_node(
            "BatchNormalization", [f"v{i}", *(f"{kind}{i}" for kind in kinds)], [f"v{i + 1}"]
        )
        for i in range(nodes // 5)
    ]
    return _make_model(
        protos, tensors={f"{kind}{i}": ones for i in range(len(protos)) for kind in kinds}
    )


def make_unused_tensors(nodes: int) -> ModelProto:
    """Return a model with unused initializers."""
    return _make_model(
        [_small_node(0)], tensors={f"t{i}": np.ones(2, np.float32) for i in range(nodes)}
    )


def make_additions(nodes: int) -> ModelProto:
    """Return a chain of Add nodes, each with its own tensor; half of `nodes` are nodes."""
    protos = [helper.make_node("Add", [f"v{i}", f"t{i}"], [f"v{i + 1}"]) for i in range(nodes // 2)]
    return _make_model(
        protos, tensors={f"t{i}": np.ones(WIDTH, np.float32) for i in range(len(protos))}
    )


def make_fan_out(nodes: int) -> ModelProto:
    """Return nodes that share their input, and a node that sums their outputs."""
    protos = [helper.make_node("Relu", ["v0"], [f"r{i}"]) for i in range(nodes)]
    return _make_model(
        [*protos, helper.make_node("Sum", [node.output[0] for node in protos], ["v1"])]
    )


def make_outputs(nodes: int) -> ModelProto:
    """Return a chain whose values are outputs of the graph with a value_info each."""
    model = _make_model([_small_node(i) for i in range(nodes)])
    model.graph.value_info.extend(_make_value(f"v{i}") for i in range(nodes))
    model.graph.output.extend(_make_value(f"v{i}") for i in range(nodes))
    return model


def make_functions(nodes: int) -> ModelProto:
    """Return calls of functions of one node; onnx allows some thousands of functions."""
    opset = [helper.make_opsetid("", 17)]
    body = [helper.make_node("Relu", ["a"], ["b"])]
    protos = [
        helper.make_function("local", f"f{i}", ["a"], ["b"], body, opset)
        for i in range(nodes // 50)
    ]
    calls = (protos[i % len(protos)].name for i in range(nodes))
    model = _make_model(
        [
            helper.make_node(name, [f"v{i}"], [f"v{i + 1}"], domain="local")
            for i, name in enumerate(calls)
        ]
    )
    model.functions.extend(protos)
    model.opset_import.add(domain="local", version=1)
    return model


def make_reversed_chain(nodes: int) -> ModelProto:
    """Return a chain in reversed order."""
    model = make_chain(nodes)
    reversed_graph = GraphProto(node=list(model.graph.node)[::-1])
    model.graph.ClearField("node")
    model.graph.node.MergeFrom(reversed_graph.node)
    return model


def make_long_name(characters: int) -> ModelProto:
    """Return a model with a name of this length in three places."""
    name = "n" * characters
    node = helper.make_node("Add", ["v0", name], ["v1"], name=name)
    return _make_model([node], tensors={name: np.ones(WIDTH, np.float32)})


def _small_node(i: int, other: str = "one") -> NodeProto:
    """Return a node of a chain: Add of another tensor and Relu alternate."""
    inputs = [f"v{i}", other] if i % 2 else [f"v{i}"]
    return helper.make_node("Add" if i % 2 else "Relu", inputs, [f"v{i + 1}"], name=f"n{i}")


def _identity_node(source: str, target: str) -> NodeProto:
    """Return an Identity node."""
    return helper.make_node("Identity", [source], [target])


def _make_value(name: str) -> ValueInfoProto:
    """Return the description of a value."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", WIDTH])


def _make_branch(op: str, source: str, name: str) -> GraphProto:
    """Return a branch with one node."""
    return helper.make_graph([helper.make_node(op, [source], [name])], op, [], [_make_value(name)])


def _constant_if(i: int, name: str = "", condition: str = "yes") -> NodeProto:
    """Return an If with a node in each branch."""
    both = {
        "then_branch": _make_branch("Relu", f"v{i}", "inner"),
        "else_branch": _make_branch("Neg", f"v{i}", "inner"),
    }
    return helper.make_node("If", [condition], [f"v{i + 1}"], name=name or f"if{i}", **both)


def _make_model(
    nodes: list[NodeProto],
    vectors: tuple[str, ...] = (),
    tensors: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> ModelProto:
    """Return a model of a MatMul and these nodes.

    Args:
        nodes: Nodes after the MatMul; the first one reads `v0`.
        vectors: Names of further tensors of ones.
        tensors: Further tensors by name.
    """
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
        [_make_value("x")],
        [_make_value(nodes[-1].output[0])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


GRAPHS: dict[str, Callable[[int], ModelProto]] = {
    "chain": make_chain,
    "constants": make_constants,
    "statistics": make_shared_statistics,
    "branches": make_branches,
    "open_branches": make_open_branches,
    "nested": make_nested_branches,
    "norms": make_norms,
    "own_norms": make_own_norms,
    "tensors": make_unused_tensors,
    "added": make_additions,
    "fan_out": make_fan_out,
    "outputs": make_outputs,
    "functions": make_functions,
    "reversed_chain": make_reversed_chain,
}
