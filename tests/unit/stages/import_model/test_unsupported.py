"""Every reason why a model is not supported, at once and without torch."""

import re
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.graph.schemas import has_function_body
from ltp_pipeline.settings.schema import ModelSettings
from ltp_pipeline.stages.import_model import network, operators, registry  # noqa: F401 - filled
from ltp_pipeline.stages.import_model.unsupported import (
    find_operator_problem,
    find_problems,
    is_quantized,
)
from ltp_pipeline.stages.tools.inspect import inspect
from tests.support.imported import NEVER, get_import_error, import_network
from tests.support.models import Graph, branch, loop_body, mlp, parsed


@pytest.mark.parametrize(
    "op", ["QLinearMatMul", "MatMulInteger", "ConvInteger", "QLinearConv", "DynamicQuantizeLinear"]
)
def test_quantized_operator_is_rejected_by_node(op: str) -> None:
    g = Graph()
    conv = op.endswith(("Conv", "ConvInteger")) and "Mat" not in op
    shape = (4, 4, 1, 1) if conv else (4, 4)
    scale, zero = g.tensor("scale", 0.1), g.tensor("zero", 0, np.uint8)
    weight = g.tensor("w", np.ones(shape), np.uint8)
    inputs: dict[str, list[str]] = {
        "QLinearMatMul": ["x", scale, zero, weight, scale, zero, scale, zero],
        "QLinearConv": ["x", scale, zero, weight, scale, zero, scale, zero],
        "MatMulInteger": ["x", weight],
        "ConvInteger": ["x", weight],
        "DynamicQuantizeLinear": ["x"],
    }
    dynamic = op.startswith("Dynamic")
    g.add(op, *inputs[op], name="node", outputs=["y", "s", "z"] if dynamic else ["y"])
    kind = TensorProto.FLOAT if dynamic else TensorProto.UINT8
    result = TensorProto.INT32 if op.endswith("Integer") else TensorProto.UINT8
    model = g.model({"x": (1, 4, 4, 4) if conv else (4, 4)}, ["y"], types={"x": kind, "y": result})
    error = get_import_error(model)
    assert isinstance(error, UnsupportedModel)
    assert any("'node'" in r and "quantized" in r for r in error.reasons)


def test_find_problems_lists_every_unsupported_node() -> None:
    text = helper.make_tensor("text", TensorProto.STRING, [1], [b"a"])
    proto = parsed(
        """(float[2] x) => (y) {
            a = com.example.Magic (x)
            b = Nonsense (a)
            d = Relu (b)
            e = Cast <to = 8> (d)
            f = StringConcat (text, text)
            y = If (c) <
                then_branch = yes () => (float[2] q) { q = Magic2 (d) },
                else_branch = no () => (float[2] r) { r = Neg (d) }
            >
        }""",
        text=text,
        c=np.bool_(True),
    )
    proto.graph.node[0].name = "spell"
    assert [line.partition(":")[0] for line in find_problems(proto)] == [
        "Magic 'spell' (opset 1, domain com.example)",
        "Nonsense 'b' (opset 21, domain ai.onnx)",
        "Cast 'e' (opset 21, domain ai.onnx)",
        "StringConcat 'f' (opset 21, domain ai.onnx)",
        "Magic2 'q' (opset 21, domain ai.onnx)",
    ]


def test_find_problems_is_empty_for_a_supported_model() -> None:
    assert find_problems(parsed("(float[2] x) => (y) { y = Relu (x) }")) == []


def test_input_of_strings_is_unsupported() -> None:
    input_problem, node_problem = find_problems(parsed("(string[2] x) => (y) { y = Identity (x) }"))
    assert "'x'" in input_problem
    assert "Identity 'y'" in node_problem
    assert "STRING" in node_problem


def test_operator_is_supported_if_the_importer_can_run_it() -> None:
    schemas = {s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}
    for opset in (7, 13, onnx.defs.onnx_opset_version()):
        for name in sorted(schemas):
            runs = registry.find_op(name, opset) is not None or has_function_body(name, opset)
            expected = name == "Constant" or (runs and not is_quantized(name))
            assert (find_operator_problem(name, opset) is None) == expected, (name, opset)


def test_import_error_lists_every_reason() -> None:
    g = Graph()
    g.tensor("q", np.ones((4, 4)), np.int8)
    g.tensor("scale", 0.1)
    g.add("MatMul", "x", g.add("DequantizeLinear", "q", "scale", name="dq"), outputs=["h"])
    g.add("Add", "h", g.add("DequantizeLinear", "q", "scale", name="dq2"), outputs=["k"])
    g.add(
        "Reshape",
        g.add("StringNormalizer", "text", name="words"),
        g.tensor("s", [-1], np.int64),
        outputs=["t"],
    )
    total = g.add("ReduceSum", "k", keepdims=0)
    g.add("If", g.add("Greater", total, "scale"), name="decide", outputs=["y"], **branches())
    model = g.model({"x": (4, 4), "text": ("N",)}, ["y"], types={"text": TensorProto.STRING})
    error = get_import_error(model)
    assert isinstance(error, UnsupportedModel)
    text = "\n".join(error.reasons)
    for part in (
        "'dq'",
        "'dq2'",
        "quantized",
        "'text' holds strings",
        "'decide'",
        "depends on the data",
        "'words'",
    ):
        assert part in text


def branches() -> dict[str, onnx.GraphProto]:
    then, other = branch("t", "wt", 1), branch("e", "we", 2)
    for graph in (then, other):
        del graph.node[0].input[1:]
        graph.node[0].op_type = "Relu"
        del graph.initializer[:]
    return {"then_branch": then, "else_branch": other}


def strange_operator(m: ModelProto) -> None:
    m.graph.node[1].op_type = "StringNormalizer"


def other_domain(m: ModelProto) -> None:
    m.graph.node[1].domain = "org.example"
    m.opset_import.append(helper.make_opsetid("org.example", 1))


def attribute_of_a_fused_operator(m: ModelProto) -> None:
    """onnx has no schema of it, so the checker says nothing."""
    m.graph.node[0].op_type, m.graph.node[0].domain = "FusedGemm", "com.microsoft"
    m.graph.node[0].attribute.append(helper.make_attribute("surprise", 1))
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))


def type_of_a_cast(m: ModelProto) -> None:
    m.graph.node[1].op_type = "Cast"
    m.graph.node[1].attribute.append(helper.make_attribute("to", TensorProto.STRING))


def type_of_an_input(m: ModelProto) -> None:
    m.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT8E4M3FN


def strings(m: ModelProto) -> None:
    m.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING


def quantized(m: ModelProto) -> None:
    m.graph.node[1].op_type = "DequantizeLinear"
    m.graph.node[1].input.append("fc1.bias")


def condition_on_the_data(m: ModelProto) -> None:
    source, target = m.graph.node[1].input[0], m.graph.node[1].output[0]
    cast = helper.make_node("Cast", [source], ["yes"], to=TensorProto.BOOL)
    branches = {}
    for name, op in (("then_branch", "Relu"), ("else_branch", "Sorcery")):
        node = helper.make_node(
            op, [source], [f"{name}_y"], name=name, domain="" if op == "Relu" else "org"
        )
        output = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        branches[name] = helper.make_graph([node], name, [], [output])
    m.graph.node[1].CopyFrom(cast)
    m.graph.node.insert(2, helper.make_node("If", ["yes"], [target], name="decide", **branches))
    m.opset_import.append(helper.make_opsetid("org", 1))


def old_opset(m: ModelProto) -> None:
    m.opset_import[0].version = 6


SPOILED: dict[Callable[[ModelProto], None], str] = {
    strange_operator: "no implementation",
    other_domain: "operators of this domain are not supported",
    attribute_of_a_fused_operator: "attribute 'surprise' is not supported",
    type_of_a_cast: "type STRING is not supported",
    type_of_an_input: "input 'x' has type FLOAT8E4M3FN",
    strings: "holds strings",
    quantized: "have no gradient",
    condition_on_the_data: "its condition depends on the data",
    old_opset: "opset 6",
}


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda f: f.__name__)
def test_inspect_gives_the_reasons_for_which_import_stops(
    saved, spoil: Callable[[ModelProto], None]
) -> None:
    model = mlp()
    spoil(model)
    with pytest.raises(UnsupportedModel) as caught:
        import_network(model, settings=ModelSettings(simplify="never"))
    reasons = inspect(saved(model)).unsupported
    assert list(reasons) == list(caught.value.reasons)
    assert any(SPOILED[spoil] in reason for reason in reasons)


def test_find_problems_needs_no_torch(saved) -> None:
    model = mlp()
    condition_on_the_data(model)
    code = (
        "import sys, onnx; from ltp_pipeline.stages.import_model.unsupported import find_problems;"
        "print(len(find_problems(onnx.load(sys.argv[1])))); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(saved(model))], capture_output=True, check=True
    )
    assert int(done.stdout) == 2


def test_loop_whose_rounds_depend_on_the_data_is_rejected() -> None:
    g = Graph()
    g.random("w", 6, 6)
    count = g.add("Cast", g.add("ReduceMax", "x", keepdims=0), to=TensorProto.INT64)
    g.add("Loop", count, "", "x", name="again", outputs=["y"], body=loop_body())
    error = get_import_error(g.model({"x": ("N", 6)}, ["y"]))
    assert re.search(r"'again'.*\bdata\b", "".join(getattr(error, "reasons", ())))


def test_loop_whose_rounds_depend_on_a_shape_is_supported() -> None:
    g = Graph()
    g.random("w", 6, 6)
    count = g.add("Gather", g.add("Shape", "x"), g.tensor("zero", 0, np.int64))
    g.add("Loop", count, g.tensor("true", True, np.bool_), "x", outputs=["y"], body=loop_body())
    assert import_network(g.model({"x": ("N", 6)}, ["y"]), settings=NEVER).parity is not None


@pytest.mark.parametrize("count", [10**6, 2**62])
def test_loop_of_unreasonably_many_rounds_is_rejected(count: int) -> None:
    g = Graph()
    g.random("w", 6, 6)
    g.add(
        "Loop",
        g.tensor("count", count, np.int64),
        "",
        "x",
        name="long",
        outputs=["y"],
        body=loop_body(),
    )
    assert "'long'" in str(
        getattr(get_import_error(g.model({"x": ("N", 6)}, ["y"])), "reasons", "")
    )


def test_loop_that_never_stops_is_rejected() -> None:
    g = Graph()
    g.random("w", 6, 6)
    g.add(
        "Loop",
        "",
        g.tensor("true", True, np.bool_),
        "x",
        name="endless",
        outputs=["y"],
        body=loop_body(),
    )
    error = get_import_error(g.model({"x": ("N", 6)}, ["y"]))
    assert "'endless'" in "".join(getattr(error, "reasons", ()))
