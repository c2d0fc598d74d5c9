"""Runs on other forms of the example's model, from file to proven file."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.cli import invoke

SHORT = (
    "--epochs",
    2,
    "--finetune-epochs",
    1,
    "--target-compression",
    6,
    "--no-baseline",
    "--max-drop",
    0.9,
)


def prune(
    capsys: pytest.CaptureFixture[str], example: Path, model: onnx.ModelProto, *options: object
) -> dict:
    onnx.save(model, example / "model.onnx")
    result = invoke(
        capsys, "run", example / "model.onnx", "--out", example / "run", *SHORT, *options, "--json"
    )
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_run_half_precision_model_keeps_its_type(example: Path, capsys):
    model = onnx.load(example / "model.onnx")
    for tensor in model.graph.initializer:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name)
        )
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    report = prune(capsys, example, model, "--export", "packed")  # 8 bits are made of float32 alone
    assert report["pruned"]["compression"] == pytest.approx(6, rel=0.01)
    assert report["pruned"]["accuracy"]["top1"] > 0.8
    packed = onnx.load(example / "run" / "model.packed.onnx")
    assert packed.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT16


def test_run_frozen_batch_norms_are_trained(example: Path, capsys):
    model = onnx.load(example / "model.onnx")
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            del node.attribute[:]
            node.attribute.extend(
                [helper.make_attribute("epsilon", 1e-5), helper.make_attribute("momentum", 1.0)]
            )
    report = prune(capsys, example, model)
    assert report["pruned"]["accuracy"]["top1"] > 0.9


def test_run_softmax_output_is_trained_on_its_logarithm(example: Path, capsys):
    model = onnx.load(example / "model.onnx")
    model.graph.node.append(helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1))
    model.graph.output[0].name = "probabilities"
    assert prune(capsys, example, model)["pruned"]["accuracy"]["top1"] > 0.9


@pytest.mark.parametrize("batch", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_run_fixed_batch_size_is_preserved(example: Path, capsys, batch: int):
    model = onnx.load(example / "model.onnx")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    report = prune(capsys, example, model)
    assert report["pruned"]["accuracy"]["samples"] == 400
    assert (
        onnx.load(example / "run" / "model.sparse.onnx")
        .graph.input[0]
        .type.tensor_type.shape.dim[0]
        .dim_value
        == batch
    )


def test_run_output_without_shape_succeeds(example: Path, capsys):
    model = onnx.load(example / "model.onnx")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    assert prune(capsys, example, model)["pruned"]["compression"] == pytest.approx(6, rel=0.01)


def test_run_reshape_with_batch_size_trains_on_any_batch(example: Path, capsys):
    """As static exports have it: Reshape to (1, 64) where the batch is 1."""
    model = onnx.load(example / "model.onnx")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    flatten = next(n for n in model.graph.node if n.op_type == "Flatten")
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 64]), "flat.shape"))
    flatten.CopyFrom(
        helper.make_node(
            "Reshape", [flatten.input[0], "flat.shape"], list(flatten.output), name="flatten"
        )
    )
    assert prune(capsys, example, model)["pruned"]["accuracy"]["top1"] > 0.9
    written = onnx.load(example / "run" / "model.sparse.onnx").graph
    shape = next(t for t in written.initializer if t.name == "flat.shape")
    assert numpy_helper.to_array(shape).tolist() == [1, 64]


def test_run_bfloat16_keeps_weights_in_single_precision(example: Path, capsys, monkeypatch):
    from ltp_pipeline.stages.learn_thresholds import budget_mode
    from ltp_pipeline.stages.learn_thresholds.functional import rectified_prune

    seen = set()
    original = rectified_prune

    def spy(ws, taus, *rest):
        pruned = original(ws, taus, *rest)
        seen.update(str(t.dtype) for t in (*ws, taus, *pruned))
        return pruned

    monkeypatch.setattr(budget_mode, "rectified_prune", spy)
    options = (*SHORT, "--precision", "bf16", "--target-compression", 15)
    result = invoke(
        capsys, "run", example / "model.onnx", "--out", example / "run", *options, "--json"
    )
    assert result.code == 0, result.err
    assert seen == {"torch.float32"}
    assert json.loads(result.out)["pruned"]["accuracy"]["top1"] > 0.8


def with_second_head(example: Path) -> onnx.ModelProto:
    model = onnx.load(example / "model.onnx")
    pooled = next(n for n in model.graph.node if n.op_type == "Flatten").output[0]
    channels = next(t for t in model.graph.initializer if t.name == "classifier.weight").dims[1]
    head = np.random.default_rng(0).normal(0, 0.1, (channels, 30)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(head, "head.weight"))
    model.graph.node.append(
        helper.make_node("MatMul", [pooled, "head.weight"], ["more"], name="head")
    )
    model.graph.output.append(
        helper.make_tensor_value_info("more", TensorProto.FLOAT, ["batch", 30])
    )
    return model


def test_run_unlabeled_head_is_not_pruned(example: Path, capsys):
    report = prune(capsys, example, with_second_head(example))
    (head,) = (layer for layer in report["layers"] if layer["name"] == "head.weight")
    assert head["nonzeros"] == head["elements"]
    assert "output" in head["reason"]
    assert any("'more'" in note for note in report["notes"])
