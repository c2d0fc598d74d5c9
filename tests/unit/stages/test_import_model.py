"""Graphs of real exporters with their traps, each executed, trained and written back."""

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto, helper

from ltp_pipeline.stages import export
from ltp_pipeline.stages.import_model.roles import TensorRole
from ltp_pipeline.stages.write_back import to_file_weights
from tests.support.imported import import_network
from tests.support.models import (
    Graph,
    branch,
    conv_bn_classifier,
    in_constants,
    loop_body,
    mlp,
    run_onnxruntime,
    with_function,
)
from tests.support.round_trip import check_round_trip


def names(result) -> list[str]:
    return [k.name for k in result.layer_weights]


def test_plain_models_round_trip() -> None:
    assert names(check_round_trip(conv_bn_classifier())) == [
        "conv1.weight",
        "conv2.weight",
        "fc.weight",
    ]
    assert names(check_round_trip(mlp())) == ["fc1.weight", "fc2.weight"]


def test_weights_in_constant_nodes_are_trained() -> None:
    result = check_round_trip(in_constants(conv_bn_classifier()))
    assert names(result) == ["conv1.weight", "conv2.weight", "fc.weight"]
    assert result.forward.roles["bn1.running_mean"] is TensorRole.STATISTIC


def merged_statistics() -> ModelProto:
    g = Graph()
    g.tensor("zeros", np.zeros(4))
    g.positive("scale", 4)
    g.add("Identity", "zeros", outputs=["bn.bias"])
    g.add("Identity", "bn.bias", outputs=["bn.mean"])
    g.add("Identity", "scale", outputs=["bn.var"])
    x = g.conv("x", "conv", 1, 4)
    g.add(
        "BatchNormalization", x, "scale", "bn.bias", "bn.mean", "bn.var", name="bn", outputs=["y"]
    )
    return g.model({"x": ("N", 1, 8, 8)}, ["y"])


def test_merged_tensors_get_statistics_of_their_own() -> None:
    result = check_round_trip(merged_statistics())
    assert result.notes[0].startswith("2 running statistics")
    roles = result.forward.roles
    assert roles["zeros"] is TensorRole.WEIGHT
    assert roles["scale"] is TensorRole.WEIGHT
    statistics = [n for n, role in roles.items() if role is TensorRole.STATISTIC]
    assert len(statistics) == 2
    result(torch.randn(8, 1, 8, 8), training=True)
    assert float(result.state["zeros"].detach().abs().max()) == 0


def test_merged_statistics_in_constant_nodes_are_separated() -> None:
    result = check_round_trip(in_constants(merged_statistics()))
    assert sum(role is TensorRole.STATISTIC for role in result.forward.roles.values()) == 2


def test_shared_weight_is_one_layer_weight() -> None:
    g = Graph()
    g.random("w", 6, 6)
    g.add("Identity", "w", outputs=["same"])
    y = g.add("Relu", g.add("MatMul", "x", "w"))
    g.add("MatMul", y, "same", outputs=["y"])
    result = check_round_trip(g.model({"x": ("N", 6)}, ["y"]))
    assert names(result) == ["w"]
    assert result.forward.weight_names == ("w",)


@pytest.mark.parametrize("view", ["Transpose", "Reshape", "Cast", "Unsqueeze", "chain"])
def test_weight_behind_a_view_keeps_name_and_layout(view: str) -> None:
    g = Graph()
    if view == "Transpose":
        w = g.add("Transpose", g.random("w", 5, 6), perm=[1, 0])
    elif view == "Reshape":
        w = g.add("Reshape", g.random("w", 30), g.tensor("shape", [6, 5], np.int64))
    elif view == "Cast":
        g.tensor("w", g.rng.standard_normal((6, 5)), np.float16)
        w = g.add("Cast", "w", to=TensorProto.FLOAT)
    elif view == "Unsqueeze":
        w = g.add("Squeeze", g.random("w", 1, 6, 5), g.tensor("axes", [0], np.int64))
    else:
        w = g.add(
            "Identity", g.add("Transpose", g.add("Identity", g.random("w", 5, 6)), perm=[1, 0])
        )
    g.add("MatMul", "x", w, outputs=["y"])
    model = g.model({"x": ("N", 6)}, ["y"])
    result = check_round_trip(model, tolerance=1e-3)
    assert names(result) == ["w"]
    assert result.layer_weights[0].shape == tuple(model.graph.initializer[0].dims)
    assert result.prunable_weights


def test_initializers_that_are_also_inputs_are_weights() -> None:
    model = conv_bn_classifier()
    for tensor in model.graph.initializer:
        model.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    result = check_round_trip(model)
    assert [i.name for i in result.file.inputs] == ["x"]
    assert result.forward.input_names == ("x",)


def test_ir_version_3_stays_valid() -> None:
    model = merged_statistics()
    for tensor in model.graph.initializer:
        model.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    model.ir_version = 3
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", 9))
    result = check_round_trip(model)
    onnx.checker.check_model(result.file.model.to_proto())


def test_local_functions_are_executed_and_kept() -> None:
    model = with_function(weight_inside=False)
    result = check_round_trip(model)
    assert names(result) == ["w"]
    assert result.prunable_weights
    assert [n.op_type for n in result.file.model.graph.node] == ["MatMul", "Layer"]
    assert len(result.file.model.proto.functions) == 1


def test_weights_inside_functions_are_trained_in_the_inlined_graph() -> None:
    result = check_round_trip(with_function(weight_inside=True))
    assert len(result.layer_weights) == 2
    assert not result.file.model.proto.functions
    assert any("inlined" in note for note in result.notes)


@pytest.mark.parametrize("opset", [13, 17])
def test_export_in_training_mode_is_put_into_inference_mode(opset: int) -> None:
    g = Graph()
    y = g.batch_norm(g.conv("x", "conv", 1, 4), "bn", 4)
    if opset >= 14:
        node = g.nodes[-1]
        node.attribute.append(helper.make_attribute("training_mode", 1))
        node.output.extend(["mean_out", "var_out"])
    y = g.add("Dropout", y, g.tensor("ratio", 0.5), g.tensor("training", True, np.bool_))
    g.add("Relu", y, outputs=["y"])
    model = g.model({"x": ("N", 1, 8, 8)}, ["y"], opset=opset)
    result = check_round_trip(model)
    assert "inference mode" in result.notes[0]
    assert not any(len(n.output) > 1 for n in result.file.model.graph.node)


def test_dynamic_sizes_are_guessed_without_data() -> None:
    model = conv_bn_classifier(size=8)
    for dim in list(model.graph.input[0].type.tensor_type.shape.dim)[1:]:
        dim.dim_param = "s"
    result = import_network(model)
    for size in (8, 16):
        x = np.random.default_rng(0).standard_normal((3, 1, size, size)).astype(np.float32)
        expected = run_onnxruntime(model, {"x": x})[0]
        assert np.allclose(result(torch.from_numpy(x))[0].detach().numpy(), expected, atol=1e-5)


def test_sizes_that_cannot_be_guessed_are_noted() -> None:
    g = Graph()
    g.gemm(g.add("Flatten", "x"), "fc", 37 * 41, 3)
    model = g.model({"x": ("N", "c", "h", "w")}, [g.nodes[-1].output[0]])
    result = import_network(model)
    assert result.parity is None
    assert "not compared with onnxruntime" in result.notes[-1]


def test_inputs_and_outputs_keep_their_order() -> None:
    g = Graph()
    a, b = g.gemm("a", "left", 4, 3), g.gemm("b", "right", 5, 3)
    both = g.add("Add", a, b, outputs=["sum"])
    g.add("Softmax", both, outputs=["p"], axis=-1)
    model = g.model({"b": ("N", 5), "a": ("N", 4)}, ["p", "sum"])
    result = check_round_trip(model)
    assert result.forward.input_names == ("b", "a")
    assert names(result) == ["left.weight", "right.weight"]


@pytest.mark.parametrize("same_name", [False, True])
def test_if_with_a_constant_condition_is_replaced(same_name: bool) -> None:
    g = Graph()
    g.gemm("x", "fc", 6, 6)
    g.nodes[-1].output[0] = "h"
    g.constant("condition", False, np.bool_)
    weights = ("w", "w") if same_name else ("w_then", "w_else")
    g.add(
        "If",
        "condition",
        outputs=["y"],
        then_branch=branch("t", weights[0], 1),
        else_branch=branch("e", weights[1], 2),
    )
    result = check_round_trip(g.model({"x": ("N", 6)}, ["y"]))
    if not same_name:  # else there is no telling which of the two tensors a name means
        assert names(result) == ["fc.weight", "w_else"]
        assert result.prunable_weights
    assert [n.op_type for n in result.file.model.graph.node] == ["Gemm", "Constant", "If"]


def test_loop_with_a_constant_count_is_trained() -> None:
    g = Graph()
    g.random("w", 6, 6)
    g.tensor("count", 3, np.int64)
    g.tensor("true", True, np.bool_)
    g.add("Loop", "count", "true", "x", outputs=["y"], body=loop_body())
    result = check_round_trip(g.model({"x": ("N", 6)}, ["y"]))
    assert names(result) == ["w"]
    assert result.prunable_weights


def test_sequences_are_executed() -> None:
    g = Graph()
    parts = g.add("SplitToSequence", "x", g.tensor("three", [3, 3], np.int64), axis=1)
    left = g.add("SequenceAt", parts, g.tensor("zero", 0, np.int64))
    right = g.add("SequenceAt", parts, g.tensor("one", 1, np.int64))
    pair = g.add("SequenceConstruct", right, left)
    g.gemm(g.add("ConcatFromSequence", pair, axis=1), "fc", 6, 4)
    assert names(check_round_trip(g.model({"x": ("N", 6)}, [g.nodes[-1].output[0]]))) == [
        "fc.weight"
    ]


def test_graph_without_names_and_shapes_is_imported() -> None:
    model = mlp()
    model.graph.name = ""
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for node in model.graph.node:
        node.name = ""
    assert import_network(model).parity is not None


@pytest.mark.parametrize("form", ["sparse", "packed", "dense"])
def test_exported_file_is_imported_with_its_zeros(form: str, tmp_path) -> None:
    model = conv_bn_classifier(channels=32)
    result = import_network(model)
    arrays = dict(to_file_weights(*result))
    rng = np.random.default_rng(0)
    for weight in result.layer_weights:
        arrays[weight.name] = arrays[weight.name] * (rng.random(weight.shape) < 0.1)
    export.write_file(
        result.file, arrays, [k.name for k in result.layer_weights], form, tmp_path / "pruned.onnx"
    )
    again = import_network(tmp_path / "pruned.onnx")
    assert names(again) == names(result)
    tensors = again.state
    for weight in again.layer_weights:
        assert np.array_equal(tensors[weight.name].detach().numpy(), arrays[weight.name])
    assert any("zero already" in note for note in again.notes)
    assert [n.name for n in again.file.model.graph.node] == [n.name for n in model.graph.node]
