"""Data without labels: the network learns from the original's own outputs and is measured beside it."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.cli import invoke
from tests.support.models import run_onnxruntime
from tests.support.trained import ending_in, regression, save_unlabelled, trained_mlp

LONGER = ("--batch-size", 32, "--epochs", 6, "--finetune-epochs", 4, "--target-compression", 3)
BRIEFEST = ("--epochs", 1, "--finetune-epochs", 0, "--no-baseline")
SHORT = ("--epochs", 3, "--finetune-epochs", 2, "--target-compression", 6, "--max-drop", 0.9)


def without_labels(example: Path) -> None:
    """Rewrite the example's data with samples only; its settings stay."""
    arrays = np.load(example / "digits.npz")
    np.savez(
        example / "digits.npz", **{key: arrays[key] for key in arrays.files if key.startswith("x")}
    )


def prune(capsys: pytest.CaptureFixture[str], example: Path, *options: object) -> dict:
    result = invoke(
        capsys, "run", example / "model.onnx", "--out", example / "run", *SHORT, *options, "--json"
    )
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_a_classifier_learns_to_agree_with_the_original(example: Path, capsys):
    without_labels(example)
    report = prune(
        capsys, example, "--baseline", "quick", "--set", "train.distill_outputs_as=logits"
    )
    assert report["metric"]["name"] == "agreement"
    assert report["pruned"]["accuracy"]["argmax_agreement"] is None
    assert report["original"]["accuracy"]["value"] == 1.0
    assert report["original"]["accuracy"]["top1"] is None
    assert "no labels" in report["original"]["reasons"]["accuracy.top1"]
    assert 0.9 < report["pruned"]["accuracy"]["value"] <= 1.0
    assert report["pruned"]["drop"] == pytest.approx(1 - report["pruned"]["accuracy"]["value"])
    assert report["data"]["classes"] is None
    shown = (example / "run" / "report.md").read_text()
    assert "agreement with the original" in shown.lower()
    assert "top-1" not in shown
    assert "argmax agreement" not in shown


@pytest.mark.slow
def test_logits_are_imitated_as_values_and_the_way_to_scores_is_told(example: Path, capsys):
    without_labels(example)
    result = invoke(
        capsys, "run", example / "model.onnx", "--out", example / "run", *SHORT, "--no-baseline"
    )
    assert result.code == 0, result.err
    assert 'train.distill_outputs_as = "logits"' in result.err
    assert "1 % of that variance, not a point of accuracy" in result.err
    assert "r2_vs_original (val)" in result.err
    assert "accuracy (val)" not in result.err + invoke(capsys, "trail", example / "run").out
    report = json.loads((example / "run" / "report.json").read_text())
    assert report["metric"]["name"] == "r2_vs_original"
    found = report["pruned"]["accuracy"]
    assert 0.7 < found["value"] < 1.0
    assert 0.9 < found["argmax_agreement"] <= 1.0
    shown = (example / "run" / "report.md").read_text()
    for text in (result.out, shown, (example / "run" / "handoff" / "HANDOFF.md").read_text()):
        assert "r2_vs_original" in text
        assert f"{100 * found['argmax_agreement']:.2f}" in text
        assert "top-1" not in text
    assert "argmax agreement" in (example / "run" / "report.html").read_text()


def squared_error(path: Path, x: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.square(run_onnxruntime(str(path), {"x": x})[0] - wanted).mean())


def test_a_regressor_of_several_numbers_keeps_its_values(tmp_path: Path, capsys):
    """Its outputs have the shape of class scores, and the same one is nearly always the largest."""
    x, y = regression()
    model = save_unlabelled(tmp_path / "example", trained_mlp(x, y), x)
    report = prune(capsys, model.parent, "--no-baseline", *LONGER)
    pruned = tmp_path / "example" / "run" / "model.packed.onnx"
    fresh, wanted = regression(seed=1)
    before, after = (squared_error(path, fresh, wanted) for path in (model, pruned))
    assert after < before + 0.05 * wanted.var(0).mean()
    assert report["metric"]["name"] == "r2_vs_original"
    taught = run_onnxruntime(str(model), {"x": fresh})[0]
    explained = 1 - squared_error(pruned, fresh, taught) / taught.var(0).mean()
    assert report["pruned"]["accuracy"]["value"] == pytest.approx(explained, abs=0.03)


@pytest.mark.slow
def test_multi_label_logits_keep_the_side_of_zero_they_are_on(tmp_path: Path, capsys):
    """Each number says yes or no; the largest of them says nothing."""
    x, y = regression()
    logits = (
        4 * y[:, :1] - 48 + [[0, -3, -6, -9]] + np.zeros_like(y[:, :1])
    )  # they rise and fall together
    model = save_unlabelled(tmp_path / "example", trained_mlp(x, logits.astype(np.float32)), x)
    report = prune(capsys, model.parent, "--no-baseline", *LONGER, "--target-compression", 2)
    assert report["metric"]["name"] == "r2_vs_original"
    files = (model, tmp_path / "example" / "run" / "model.packed.onnx")
    before, after = (run_onnxruntime(str(path), {"x": x})[0] > 0 for path in files)
    assert (before == after).mean() > 0.93


@pytest.mark.slow
def test_behind_a_softmax_the_same_class_is_what_counts(tmp_path: Path, capsys):
    x, y = regression()
    model = ending_in("Softmax", trained_mlp(x, (y[:, 1] > -4.5).astype(np.int64)))
    report = prune(
        capsys, save_unlabelled(tmp_path / "example", model, x).parent, "--no-baseline", *LONGER
    )
    assert report["metric"]["name"] == "agreement"
    assert report["pruned"]["accuracy"]["value"] > 0.9


@pytest.mark.slow
def test_the_default_budget_is_met_in_variance_explained(example: Path, capsys):
    without_labels(example)
    result = invoke(
        capsys, "run", example / "model.onnx", "--out", example / "run", "--json", "--no-baseline",
        "--epochs", 4, "--finetune-epochs", 2, "--accuracy-budget", 0.05, "--min-compression", 1.5, "--max-drop", 0.9,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert json.loads(result.out)["pruned"]["compression"] > 1.5


def test_a_model_of_several_outputs_is_pruned_and_each_is_proven(example: Path, capsys):
    """Scores, a regression head of one number, and a map of values; a fourth output of integers is left out."""
    model = onnx.load(example / "model.onnx")
    graph = model.graph
    pooled = next(n for n in graph.node if n.op_type == "Flatten").output[0]
    channels = next(
        numpy_helper.to_array(t) for t in graph.initializer if t.name == "classifier.weight"
    ).shape[1]
    head = np.random.default_rng(0).normal(0, 0.1, (channels, 1)).astype(np.float32)
    graph.initializer.append(numpy_helper.from_array(head, "head.weight"))
    graph.node.append(helper.make_node("MatMul", [pooled, "head.weight"], ["size"], name="head"))
    graph.node.append(helper.make_node("ArgMax", ["scores"], ["class"], name="class", axis=1))
    relu = [n for n in graph.node if n.op_type == "Relu"][-1].output[0]
    graph.output.append(helper.make_tensor_value_info("size", TensorProto.FLOAT, ["batch", 1]))
    graph.output.append(helper.make_tensor_value_info("class", TensorProto.INT64, ["batch", 1]))
    graph.output.append(helper.make_tensor_value_info(relu, TensorProto.FLOAT, None))
    onnx.save(model, example / "model.onnx")
    without_labels(example)
    report = prune(capsys, example, "--no-baseline")
    assert 0.7 < report["pruned"]["accuracy"]["value"] < 1.0
    low, high = report["pruned"]["drop_interval"]
    assert low < report["pruned"]["drop"] < high


def test_validate_measures_nearness_to_the_original(example: Path, capsys):
    without_labels(example)
    prune(capsys, example, *BRIEFEST)
    arguments = (
        "validate",
        example / "run" / "model.packed.onnx",
        "--data",
        example / "digits.npz",
        "--json",
    )
    found = invoke(
        capsys, *arguments, "--config", example / "ltp.toml", "--against", example / "model.onnx"
    )
    assert found.code == 0, found.err
    told = json.loads((example / "run" / "report.json").read_text())["pruned"]["accuracy"]["value"]
    assert json.loads(found.out)["accuracy"]["value"] == told


def test_validate_without_labels_needs_the_original(example: Path, capsys):
    without_labels(example)
    found = invoke(capsys, "validate", example / "model.onnx", "--data", example / "digits.npz")
    assert found.code == 3
    assert "--against" in found.err


def test_splits_with_and_without_labels_do_not_mix(example: Path, capsys):
    arrays = dict(np.load(example / "digits.npz"))
    del arrays["y_test"]
    np.savez(example / "digits.npz", **arrays)
    found = invoke(capsys, "run", example / "model.onnx", "--out", example / "run")
    assert found.code == 3
    assert "y_test" in found.err


def test_validate_reads_outputs_as_the_settings_say(example: Path, capsys):
    """As values, scores that keep their order but not their size do not agree."""
    without_labels(example)
    model = onnx.load(example / "model.onnx")
    (bias,) = (t for t in model.graph.initializer if t.name == "classifier.bias")
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.float32(100), bias.name))
    onnx.save(model, example / "shifted.onnx")
    found = {}
    for kind in ("logits", "values"):
        settings = (example / "ltp.toml").read_text()
        (example / f"{kind}.toml").write_text(
            settings.replace("[train]", f'[train]\ndistill_outputs_as = "{kind}"')
        )
        against = (
            "--against",
            example / "model.onnx",
            "--config",
            example / f"{kind}.toml",
            "--json",
        )
        result = invoke(
            capsys, "validate", example / "shifted.onnx", "--data", example / "digits.npz", *against
        )
        assert result.code == 0, result.err
        found[kind] = json.loads(result.out)["accuracy"]["value"]
    assert found == {"logits": 1.0, "values": 0.0}


def test_an_output_without_a_row_per_sample_is_left_out_of_run_and_validation(
    example: Path, capsys
):
    model = onnx.load(example / "model.onnx")
    model.graph.node.append(
        helper.make_node("ReduceMean", ["scores"], ["mean"], axes=[0], keepdims=1)
    )
    model.graph.output.append(helper.make_tensor_value_info("mean", TensorProto.FLOAT, [1, 10]))
    onnx.save(model, example / "model.onnx")
    without_labels(example)
    report = prune(capsys, example, *BRIEFEST)
    arguments = (
        "validate",
        example / "run" / "model.packed.onnx",
        "--data",
        example / "digits.npz",
        "--json",
    )
    found = invoke(
        capsys, *arguments, "--config", example / "ltp.toml", "--against", example / "model.onnx"
    )
    assert json.loads(found.out)["accuracy"]["value"] == report["pruned"]["accuracy"]["value"]
