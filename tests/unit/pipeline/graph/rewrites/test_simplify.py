"""onnxsim in a child process, for graphs that cannot be executed as they are."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.rewrites import simplify
from ltp_pipeline.graph.rewrites.simplify import SimplifyFailed, simplify_model
from ltp_pipeline.settings.schema import Settings
from tests.support.imported import import_network
from tests.support.models import Graph, conv_bn_classifier, mlp, random_inputs
from tests.support.round_trip import check_gradients, check_write_back


def strings_that_fold_away() -> ModelProto:
    """Return a classifier with strings in a branch that constant folding shows is never taken."""
    g = Graph()
    g.gemm("x", "fc", 6, 4)
    h = g.nodes[-1].output[0]
    branches = {}
    for name, operators in (
        ("then_branch", ["Relu"]),
        ("else_branch", ["Cast", "Identity", "Cast"]),
    ):
        nodes, last = [], h
        for i, op in enumerate(operators):
            nodes.append(helper.make_node(op, [last], [f"{name}{i}"], name=f"{name}_{op}{i}"))
            last = f"{name}{i}"
        for node, kind in zip(nodes[::2], (TensorProto.STRING, TensorProto.FLOAT), strict=False):
            if node.op_type == "Cast":
                node.attribute.append(helper.make_attribute("to", kind))
        output = helper.make_tensor_value_info(last, TensorProto.FLOAT, ["N", 4])
        branches[name] = helper.make_graph(nodes, name, [], [output])
    larger = g.add("Greater", g.tensor("two", 2.0), g.tensor("one", 1.0))
    g.add("If", larger, name="choice", outputs=["y"], **branches)
    return g.model({"x": ("N", 6)}, ["y"])


@pytest.mark.long
def test_graph_that_cannot_be_executed_is_simplified() -> None:
    model = strings_that_fold_away()
    result = import_network(model)
    assert simplify.NOTES["auto"] in result.notes
    assert [k.name for k in result.layer_weights] == ["fc.weight"]
    feeds = random_inputs(model)
    check_gradients(result, feeds)


def test_simplify_never_raises_instead() -> None:
    with pytest.raises(UnsupportedModel) as caught:
        import_network(
            strings_that_fold_away(), settings=Settings(model={"simplify": "never"}).model
        )
    assert "STRING" in "".join(caught.value.reasons)


@pytest.mark.long
def test_simplify_always_keeps_norms_and_names() -> None:
    model = conv_bn_classifier()
    result = import_network(model, settings=Settings(model={"simplify": "always"}).model)
    assert simplify.NOTES["always"] in result.notes
    assert [n.op_type for n in result.file.model.graph.node].count("BatchNormalization") == 2
    assert [k.name for k in result.layer_weights] == ["conv1.weight", "conv2.weight", "fc.weight"]
    feeds = random_inputs(model)
    check_gradients(result, feeds)
    assert {t.name for t in model.graph.initializer} <= {
        t.name for t in result.file.model.graph.initializer
    }


@pytest.mark.long
def test_simplify_model_stops_at_its_limits() -> None:
    with pytest.raises(SimplifyFailed, match=r"0\.05 s"):
        simplify_model(OnnxModel.from_proto(mlp()), max_seconds=0.05)
    with pytest.raises(SimplifyFailed, match="onnxsim"):
        simplify_model(OnnxModel.from_proto(mlp()), max_memory=50 << 20)


@pytest.mark.long
def test_first_reasons_are_raised_if_simplifying_does_not_help() -> None:
    model = mlp()
    model.graph.node[1].op_type, model.graph.node[1].domain = "Sorcery", "org.example"
    model.opset_import.append(helper.make_opsetid("org.example", 1))
    with pytest.raises(UnsupportedModel) as caught:
        import_network(model)
    assert "Sorcery" in caught.value.reasons[0]


def test_inherent_problems_are_raised_without_simplifying(monkeypatch) -> None:
    def unexpected(*_: object) -> None:
        raise AssertionError("onnxsim was called")

    monkeypatch.setattr(simplify, "simplify_model", unexpected)
    g = Graph()
    weight = g.add("DequantizeLinear", g.tensor("q", np.ones((6, 4)), np.int8), g.tensor("s", 0.1))
    g.add("MatMul", "x", weight, outputs=["y"])
    with pytest.raises(UnsupportedModel) as caught:
        import_network(g.model({"x": ("N", 6)}, ["y"]))
    (reason,) = caught.value.reasons
    assert "DequantizeLinear" in reason


def test_simplified_model_is_written_back(monkeypatch) -> None:
    def same(model: OnnxModel) -> OnnxModel:
        copy = copy_proto(model.proto)
        copy.graph.node[0].name = "renamed"
        return replace(model, proto=copy)

    monkeypatch.setattr(simplify, "simplify_model", same)
    model = mlp()
    result = import_network(model, settings=Settings(model={"simplify": "always"}).model)
    written = check_write_back(result, model, random_inputs(model))
    assert written.graph.node[0].name == "renamed"
