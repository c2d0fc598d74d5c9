"""Mutants of a model's graph: connections, operators, attributes, nested graphs and functions."""

from __future__ import annotations

import random

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, defs, helper

from tests.fuzz.model_mutants import NUMBERS, TYPES, Mutant, list_messages

OPERATORS = sorted({s.name for s in defs.get_all_schemas() if s.domain == ""})
FUSED = (
    "FusedConv",
    "FusedGemm",
    "FusedMatMul",
    "Attention",
    "SkipLayerNormalization",
    "BiasGelu",
    "QAttention",
)


def _list_nodes(model: ModelProto) -> list[NodeProto]:
    return [m for m in list_messages(model) if isinstance(m, NodeProto)]


def _choose_node(model: ModelProto, rng: random.Random) -> NodeProto:
    nodes = _list_nodes(model)
    return rng.choice(nodes) if nodes else NodeProto()


def _choose_graph(model: ModelProto, rng: random.Random) -> GraphProto:
    graphs = [m for m in list_messages(model) if isinstance(m, GraphProto)]
    return rng.choice(graphs) if rng.random() < 0.3 and graphs else model.graph


def _list_names(model: ModelProto) -> list[str]:
    values = {v.name for v in (*model.graph.input, *model.graph.output)} | {
        t.name for t in model.graph.initializer
    }
    return sorted(
        values
        | {n for node in _list_nodes(model) for n in (*node.input, *node.output)}
        | {"", "nothing"}
    )


def rename_value(model: ModelProto, rng: random.Random) -> None:
    """Rename an input or output of a node: cycles, repeated values, inputs without a producer."""
    node = _choose_node(model, rng)
    values = rng.choice((node.input, node.output))
    if values:
        values[rng.randrange(len(values))] = rng.choice(_list_names(model))


def change_number_of_values(model: ModelProto, rng: random.Random) -> None:
    """Add or remove inputs or outputs of a node."""
    node = _choose_node(model, rng)
    values = rng.choice((node.input, node.output))
    kind = rng.randrange(8)
    if kind < 3:
        values.append(rng.choice(_list_names(model)))
    elif kind < 6 and values:
        del values[-1]
    elif kind == 6:
        del values[:]
    else:
        values.extend([rng.choice(_list_names(model))] * rng.choice((3, 1000)))


def make_cycle(model: ModelProto, rng: random.Random) -> None:
    """Let an early node read an output of a later one."""
    nodes = model.graph.node
    if len(nodes) > 1:
        first, second = sorted(rng.sample(range(len(nodes)), 2))
        if nodes[first].input and nodes[second].output:
            nodes[first].input[0] = nodes[second].output[0]


def change_operator(model: ModelProto, rng: random.Random) -> None:
    """Change operator or domain of a node."""
    node = _choose_node(model, rng)
    kind = rng.randrange(5)
    if kind < 3:
        node.op_type = rng.choice(OPERATORS)
    elif kind == 3:
        node.op_type, node.domain = rng.choice(FUSED), "com.microsoft"
    else:
        node.domain = rng.choice(
            ("ai.onnx", "ai.onnx.ml", "com.microsoft", "x", "ai.onnx.training")
        )


def add_node(model: ModelProto, rng: random.Random) -> None:
    """Add a node of any operator on any values, and let later nodes read it."""
    names, op = _list_names(model), rng.choice(OPERATORS)
    schema = defs.get_schema(op)
    inputs = [
        rng.choice(names) for _ in range(rng.randint(schema.min_input, min(schema.max_input, 6)))
    ]
    node = helper.make_node(op, inputs, ["added"], name="added")
    for name, attribute_schema in schema.attributes.items():
        if attribute_schema.required or rng.random() < 0.2:
            node.attribute.append(_make_attribute(name, attribute_schema.type, rng))
    at = rng.randint(0, len(model.graph.node))
    after = list(model.graph.node)[at:]
    del model.graph.node[at:]
    for later in after:
        if inputs and inputs[0] and rng.random() < 0.7:
            later.input[:] = ["added" if name == inputs[0] else name for name in later.input]
    model.graph.node.extend([node, *after])


def _make_attribute(name: str, kind: object, rng: random.Random) -> AttributeProto:
    number = rng.choice(NUMBERS)
    values = {
        "INT": number,
        "INTS": [rng.choice(NUMBERS) for _ in range(rng.randrange(1, 5))],
        "FLOAT": rng.choice((0.0, -1.0, 1e38, float("nan"), float("inf"))),
        "FLOATS": [rng.choice((0.0, 1.5, float("inf"))) for _ in range(rng.randrange(1, 4))],
        "STRING": rng.choice(
            (b"", b"SAME_UPPER", b"ij,jk->ik", b"...a,a...", b"\xff", b"linear" * 1000)
        ),
        "STRINGS": [b"Tanh", b"\xff"],
        "TENSOR": TensorProto(data_type=rng.choice(TYPES[:20]), dims=[1], raw_data=b"\0" * 4),
        "GRAPH": GraphProto(name="g"),
    }
    return helper.make_attribute(name, values.get(str(kind).rpartition(".")[2], number))


def change_attribute(model: ModelProto, rng: random.Random) -> None:
    """Change an attribute of a node or its schema, often to another type."""
    node = _choose_node(model, rng)
    kinds: dict[str, object] = {
        a.name: AttributeProto.AttributeType.Name(a.type) for a in node.attribute
    } or {"axis": 2}
    if node.op_type in OPERATORS and rng.random() < 0.7:
        kinds |= {
            name: attribute_schema.type
            for name, attribute_schema in defs.get_schema(node.op_type).attributes.items()
        }
    name = rng.choice(sorted(kinds))
    kind = (
        kinds[name]
        if rng.random() < 0.7
        else rng.choice(("INT", "INTS", "FLOAT", "STRING", "TENSOR", "GRAPH"))
    )
    others = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*others, _make_attribute(name, kind, rng)])


def drop_attributes(model: ModelProto, rng: random.Random) -> None:
    """Remove or repeat attributes of a node."""
    node = _choose_node(model, rng)
    if node.attribute:
        kind = rng.randrange(4)
        if kind == 0:
            del node.attribute[:]
        elif kind == 1:
            node.attribute.append(rng.choice(node.attribute))
        elif kind == 2:
            node.attribute[0].ref_attr_name = "other"
        else:
            del node.attribute[rng.randrange(len(node.attribute))]


def drop_or_repeat_part(model: ModelProto, rng: random.Random) -> None:
    """Remove or repeat a node, tensor, input or output."""
    graph = _choose_graph(model, rng)
    values = rng.choice(
        (graph.node, graph.initializer, graph.input, graph.output, graph.value_info)
    )
    if not values:
        return
    if rng.random() < 0.5:
        del values[rng.randrange(len(values))]
    else:
        values.append(rng.choice(values))


def shuffle_nodes(model: ModelProto, rng: random.Random) -> None:
    """Shuffle the nodes of a graph."""
    graph = _choose_graph(model, rng)
    nodes = list(graph.node)
    rng.shuffle(nodes)
    shuffled = GraphProto(node=nodes)
    graph.ClearField("node")
    graph.node.MergeFrom(shuffled.node)


def change_declared_type(model: ModelProto, rng: random.Random) -> None:
    """Change the declared type or shape of an input or output."""
    values = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    if not values:
        return
    value = rng.choice(values)
    dims = value.type.tensor_type.shape.dim
    kind = rng.randrange(6)
    if kind < 2 and dims:
        rng.choice(dims).dim_value = rng.choice((*NUMBERS, 100_000, 5000))
    elif kind == 2 and dims:
        rng.choice(dims).dim_param = rng.choice(("", "N", "x" * 5000))
    elif kind == 3:
        value.type.tensor_type.elem_type = rng.choice(TYPES)
    elif kind == 4:
        del dims[rng.randrange(len(dims) + 1) :]
    else:
        value.type.CopyFrom(helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None)))


def _make_body(name: str, inputs: int, outputs: int, rng: random.Random, reads: str) -> GraphProto:
    floats = [
        helper.make_tensor_value_info(f"{name}_i{i}", rng.choice((1, 7, 9)), None)
        for i in range(inputs)
    ]
    made = [
        helper.make_tensor_value_info(f"{name}_o{i}", rng.choice((1, 1, 9)), None)
        for i in range(outputs)
    ]
    sources = [v.name for v in floats] or [reads]
    nodes = [
        helper.make_node("Identity", [rng.choice((*sources, reads))], [value.name])
        for value in made
    ]
    return helper.make_graph(nodes, name, floats, made)


def add_control_flow(model: ModelProto, rng: random.Random) -> None:
    """Add an If, Loop or Scan with any inputs, outputs and attributes, nested a few levels."""
    names = _list_names(model)
    reads = rng.choice(names)
    op = rng.choice(("If", "Loop", "Scan"))
    bodies = ("then_branch", "else_branch") if op == "If" else ("body",)
    node = helper.make_node(
        op, [rng.choice(names) for _ in range(rng.randrange(5))], ["flow"], name="flow"
    )
    for name in bodies[: rng.choice((0, 1, 2, 2, 2))]:
        body = _make_body(name, 0 if op == "If" else rng.randrange(4), rng.randrange(4), rng, reads)
        for depth in range(rng.choice((0, 0, 1, 3, 40))):
            inner = helper.make_node(
                "If", [reads], [f"{name}_{depth}"], then_branch=body, else_branch=body
            )
            value = helper.make_tensor_value_info(f"{name}_{depth}", 1, None)
            if body.ByteSize() > 100_000:
                break
            body = helper.make_graph([inner], name, [], [value])
        node.attribute.append(helper.make_attribute(name, body))
    if op == "Scan" or rng.random() < 0.1:
        node.attribute.append(
            helper.make_attribute("num_scan_inputs", rng.choice((0, 1, 2, -1, 2**40)))
        )
    model.graph.node.insert(rng.randint(0, len(model.graph.node)), node)
    if rng.random() < 0.5 and model.graph.output:
        model.graph.output[0].name = "flow"


def add_function(model: ModelProto, rng: random.Random) -> None:
    """Add functions that call themselves or each other, multiply, or have other inputs."""
    kind = rng.randrange(5)
    opsets = [helper.make_opsetid("", rng.choice((17, 7, 99))), helper.make_opsetid("f", 1)]
    calls = {0: ["f0"], 1: ["f1"], 2: ["f1"] * 8, 3: ["Relu"], 4: ["Loop"]}[kind]
    depth = {2: rng.choice((3, 12, 150))}.get(kind, 2)
    for i in range(depth):
        last = i == depth - 1
        ops = (
            [f"f{i + 1}"] * len(calls)
            if kind == 2 and not last
            else ["f0"]
            if kind == 1 and last
            else calls
        )
        ops = ["Relu"] if kind == 2 and last else ops
        values = ["a", *(f"v{j}" for j in range(len(ops) - 1)), "b"]
        nodes = [
            helper.make_node(
                op, [values[j]], [values[j + 1]], domain="f" if op.startswith("f") else ""
            )
            for j, op in enumerate(ops)
        ]
        model.functions.append(
            helper.make_function("f", f"f{i}", ["a"], ["b"], nodes, opsets, ["alpha"])
        )
    model.opset_import.add(domain="f", version=1)
    node = rng.choice(model.graph.node) if model.graph.node else model.graph.node.add()
    node.op_type, node.domain = "f0", "f"
    if rng.random() < 0.5:
        del node.input[1:]
        del node.attribute[:]


def add_training_info(model: ModelProto, rng: random.Random) -> None:
    """Add graphs for training."""
    info = model.training_info.add()
    info.algorithm.CopyFrom(model.graph)
    info.initialization.CopyFrom(_make_body("init", 1, 1, rng, "x"))


GRAPH_MUTANTS: tuple[Mutant, ...] = (
    *(
        rename_value,
        rename_value,
        change_number_of_values,
        make_cycle,
        change_operator,
        change_operator,
        add_node,
        add_node,
    ),
    *(
        change_attribute,
        change_attribute,
        change_attribute,
        drop_attributes,
        drop_or_repeat_part,
        shuffle_nodes,
    ),
    *(
        change_declared_type,
        change_declared_type,
        add_control_flow,
        add_control_flow,
        add_function,
        add_training_info,
    ),
)
