"""Every reason why a model is not supported, at once and without torch."""

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.settings.schema import ModelSettings
from ltp_pipeline.stages.import_model import network, operators, registry  # noqa: F401 - filled
from ltp_pipeline.stages.tools.inspect import inspect
from tests.support.imported import imported, refused
from tests.support.models import Graph, branch, mlp


def test_every_reason_is_listed_at_once() -> None:
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
    error = refused(model)
    assert isinstance(error, UnsupportedModel)
    text = "\n".join(error.reasons)
    for part in (
        "'dq'",
        "'dq2'",
        "quantised",
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
    m.opset_import.append(onnx.helper.make_opsetid("org.example", 1))


def attribute_of_a_fused_operator(m: ModelProto) -> None:
    """onnx has no schema of it, so the checker says nothing."""
    m.graph.node[0].op_type, m.graph.node[0].domain = "FusedGemm", "com.microsoft"
    m.graph.node[0].attribute.append(onnx.helper.make_attribute("surprise", 1))
    m.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))


def type_of_a_cast(m: ModelProto) -> None:
    m.graph.node[1].op_type = "Cast"
    m.graph.node[1].attribute.append(onnx.helper.make_attribute("to", TensorProto.STRING))


def type_of_an_input(m: ModelProto) -> None:
    m.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT8E4M3FN


def strings(m: ModelProto) -> None:
    m.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING


def quantised(m: ModelProto) -> None:
    m.graph.node[1].op_type = "DequantizeLinear"
    m.graph.node[1].input.append("fc1.bias")


def condition_on_the_data(m: ModelProto) -> None:
    source, target = m.graph.node[1].input[0], m.graph.node[1].output[0]
    cast = onnx.helper.make_node("Cast", [source], ["yes"], to=TensorProto.BOOL)
    branches = {}
    for name, op in (("then_branch", "Relu"), ("else_branch", "Sorcery")):
        node = onnx.helper.make_node(
            op, [source], [f"{name}_y"], name=name, domain="" if op == "Relu" else "org"
        )
        output = onnx.helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        branches[name] = onnx.helper.make_graph([node], name, [], [output])
    m.graph.node[1].CopyFrom(cast)
    m.graph.node.insert(
        2, onnx.helper.make_node("If", ["yes"], [target], name="decide", **branches)
    )
    m.opset_import.append(onnx.helper.make_opsetid("org", 1))


def old_opset(m: ModelProto) -> None:
    m.opset_import[0].version = 6


SPOILED: dict[Callable[[ModelProto], None], str] = {
    strange_operator: "no implementation",
    other_domain: "operators of this domain are not supported",
    attribute_of_a_fused_operator: "attribute 'surprise' is not supported",
    type_of_a_cast: "type STRING is not supported",
    type_of_an_input: "input 'x' has type FLOAT8E4M3FN",
    strings: "holds strings",
    quantised: "have no gradient",
    condition_on_the_data: "its condition depends on the data",
    old_opset: "opset 6",
}


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda f: f.__name__)
def test_it_gives_the_reasons_for_which_run_stops(
    saved, spoil: Callable[[ModelProto], None]
) -> None:
    model = mlp()
    spoil(model)
    with pytest.raises(UnsupportedModel) as caught:
        imported(model, settings=ModelSettings(simplify="never"))
    found = inspect(saved(model)).unsupported
    assert list(found) == list(caught.value.reasons)
    assert any(SPOILED[spoil] in reason for reason in found)


def test_whether_a_model_is_supported_is_told_without_torch(saved) -> None:
    model = mlp()
    condition_on_the_data(model)
    code = (
        "import sys, onnx; from ltp_pipeline.stages.import_model.supported import find_problems;"
        "print(len(find_problems(onnx.load(sys.argv[1])))); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(saved(model))], capture_output=True, check=True
    )
    assert int(done.stdout) == 2
