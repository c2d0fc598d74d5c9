"""Data without labels: the network is distilled from the original and compared with it."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.cli import invoke
from tests.support.models import run_onnxruntime
from tests.support.trained import ending_in, make_regression, save_unlabelled, trained_mlp

LONGER = ("--batch-size", 32, "--epochs", 6, "--finetune-epochs", 4, "--target-compression", 3)
BRIEFEST = ("--epochs", 1, "--finetune-epochs", 0, "--no-baseline")
SHORT = ("--epochs", 3, "--finetune-epochs", 2, "--target-compression", 6, "--max-drop", 0.9)


def remove_labels(example: Path) -> None:
    """Remove the labels from the example's data."""
    arrays = np.load(example / "digits.npz")
    samples = {key: arrays[key] for key in arrays.files if key.startswith("x")}
    np.savez(example / "digits.npz", **samples)


def prune(capsys: pytest.CaptureFixture[str], example: Path, *options: object) -> dict:
    result = invoke(
        capsys, "run", example / "model.onnx", "--out", example / "run", *SHORT, *options, "--json"
    )
    assert result.code == 0, result.err
    return json.loads(result.out)


def get_accuracy(report: dict, path: Path) -> float:
    """Return the accuracy that a report has for one of its files."""
    (file,) = [file for file in report["pruned"]["files"] if Path(file["path"]).name == path.name]
    return file["accuracy"]["value"]


def test_run_logits_without_labels_reports_agreement(example: Path, capsys):
    remove_labels(example)
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
def test_run_values_without_labels_reports_r2_and_names_logits(example: Path, capsys):
    remove_labels(example)
    result = invoke(
        capsys, "run", example / "model.onnx", "--out", example / "run", *SHORT, "--no-baseline"
    )
    assert result.code == 0, result.err
    assert 'train.distill_outputs_as = "logits"' in result.err
    assert "r2_vs_original (val)" in result.err
    assert "accuracy (val)" not in result.err + invoke(capsys, "trail", example / "run").out
    report = json.loads((example / "run" / "report.json").read_text())
    assert report["metric"]["name"] == "r2_vs_original"
    accuracy = report["pruned"]["accuracy"]
    assert 0.7 < accuracy["value"] < 1.0
    assert 0.9 < accuracy["argmax_agreement"] <= 1.0
    shown = (example / "run" / "report.md").read_text()
    for text in (result.out, shown, (example / "run" / "handoff" / "HANDOFF.md").read_text()):
        assert "r2_vs_original" in text
        assert f"{100 * accuracy['argmax_agreement']:.2f}" in text
        assert "top-1" not in text
    assert "argmax agreement" in (example / "run" / "report.html").read_text()


def squared_error(path: Path, x: np.ndarray, expected: np.ndarray) -> float:
    return float(np.square(run_onnxruntime(str(path), {"x": x})[0] - expected).mean())


def test_run_regressor_without_labels_keeps_its_values(tmp_path: Path, capsys):
    """Its outputs have the shape of class scores, and one of them is nearly always the largest."""
    x, y = make_regression()
    model = save_unlabelled(tmp_path / "example", trained_mlp(x, y), x)
    report = prune(capsys, model.parent, "--no-baseline", *LONGER)
    pruned = tmp_path / "example" / "run" / "model.packed.onnx"
    fresh, expected = make_regression(seed=1)
    before, after = (squared_error(path, fresh, expected) for path in (model, pruned))
    assert after < before + 0.05 * expected.var(0).mean()
    assert report["metric"]["name"] == "r2_vs_original"
    teacher = run_onnxruntime(str(model), {"x": fresh})[0]
    r2 = 1 - squared_error(pruned, fresh, teacher) / teacher.var(0).mean()
    assert report["pruned"]["accuracy"]["value"] == pytest.approx(r2, abs=0.03)


@pytest.mark.slow
def test_run_multilabel_logits_without_labels_keep_their_signs(tmp_path: Path, capsys):
    """Each number says yes or no; the largest of them says nothing."""
    x, y = make_regression()
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
def test_run_softmax_without_labels_reports_agreement(tmp_path: Path, capsys):
    x, y = make_regression()
    model = ending_in("Softmax", trained_mlp(x, (y[:, 1] > -4.5).astype(np.int64)))
    report = prune(
        capsys, save_unlabelled(tmp_path / "example", model, x).parent, "--no-baseline", *LONGER
    )
    assert report["metric"]["name"] == "agreement"
    assert report["pruned"]["accuracy"]["value"] > 0.9


@pytest.mark.slow
def test_run_accuracy_budget_without_labels_is_in_r2(example: Path, capsys):
    remove_labels(example)
    training = ("--epochs", 4, "--finetune-epochs", 2, "--accuracy-budget", 0.05, "--no-baseline")
    gates = ("--min-compression", 1.5, "--max-drop", 0.9)
    command = ("run", example / "model.onnx", "--out", example / "run", "--json")
    result = invoke(capsys, *command, *training, *gates)
    assert result.code == 0, result.err
    assert json.loads(result.out)["pruned"]["compression"] > 1.5


def test_run_several_outputs_without_labels_compares_all(example: Path, capsys):
    """Scores, a single number and a map of values are compared; an output of integers is not."""
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
    remove_labels(example)
    report = prune(capsys, example, "--no-baseline")
    assert 0.7 < report["pruned"]["accuracy"]["value"] < 1.0
    low, high = report["pruned"]["drop_interval"]
    assert low < report["pruned"]["drop"] < high


def test_validate_without_labels_compares_with_the_original(example: Path, capsys):
    remove_labels(example)
    prune(capsys, example, *BRIEFEST)
    arguments = (
        "validate",
        example / "run" / "model.packed.onnx",
        "--data",
        example / "digits.npz",
        "--json",
    )
    result = invoke(
        capsys, *arguments, "--config", example / "ltp.toml", "--against", example / "model.onnx"
    )
    assert result.code == 0, result.err
    report = json.loads((example / "run" / "report.json").read_text())
    expected = get_accuracy(report, example / "run" / "model.packed.onnx")
    assert json.loads(result.out)["accuracy"]["value"] == expected


def test_validate_without_labels_requires_against(example: Path, capsys):
    remove_labels(example)
    result = invoke(capsys, "validate", example / "model.onnx", "--data", example / "digits.npz")
    assert result.code == 3
    assert "--against" in result.err


def test_run_labels_in_some_splits_only_is_rejected(example: Path, capsys):
    arrays = dict(np.load(example / "digits.npz"))
    del arrays["y_test"]
    np.savez(example / "digits.npz", **arrays)
    result = invoke(capsys, "run", example / "model.onnx", "--out", example / "run")
    assert result.code == 3
    assert "y_test" in result.err


def test_validate_reads_outputs_by_setting(example: Path, capsys):
    """Scores that keep their order but not their size agree as logits, not as values."""
    remove_labels(example)
    model = onnx.load(example / "model.onnx")
    (bias,) = (t for t in model.graph.initializer if t.name == "classifier.bias")
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.float32(100), bias.name))
    onnx.save(model, example / "shifted.onnx")
    values = {}
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
        values[kind] = json.loads(result.out)["accuracy"]["value"]
    assert values == {"logits": 1.0, "values": 0.0}


def test_run_and_validate_skip_outputs_without_a_row_per_sample(example: Path, capsys):
    model = onnx.load(example / "model.onnx")
    model.graph.node.append(
        helper.make_node("ReduceMean", ["scores"], ["mean"], axes=[0], keepdims=1)
    )
    model.graph.output.append(helper.make_tensor_value_info("mean", TensorProto.FLOAT, [1, 10]))
    onnx.save(model, example / "model.onnx")
    remove_labels(example)
    report = prune(capsys, example, *BRIEFEST)
    arguments = (
        "validate",
        example / "run" / "model.packed.onnx",
        "--data",
        example / "digits.npz",
        "--json",
    )
    result = invoke(
        capsys, *arguments, "--config", example / "ltp.toml", "--against", example / "model.onnx"
    )
    expected = get_accuracy(report, example / "run" / "model.packed.onnx")
    assert json.loads(result.out)["accuracy"]["value"] == expected
