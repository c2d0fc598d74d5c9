"""`--target-macs` and `--max-macs` through the command line, recounted from the exported files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from ltp_pipeline.demo import copy_example
from tests.support.cli import invoke, start

TARGET = 0.2
OPTIONS = ("--epochs", 2, "--finetune-epochs", 1, "--export", "dense", "--target-macs", TARGET)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example after a short run with a budget of multiply-adds; summary.txt is its output."""
    folder = tmp_path_factory.mktemp("macs") / "example"
    copy_example(folder)
    settings = (folder / "ltp.toml").read_text()
    settings = settings.replace("target_compression = 30", "").partition("[gates]")[0]
    (folder / "ltp.toml").write_text(settings)
    process = start("run", "model.onnx", "--out", "run", *OPTIONS, cwd=folder)
    out, err = process.communicate()
    assert process.returncode == 0, err
    (folder / "summary.txt").write_text(out)
    return folder


@pytest.fixture
def run(example: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(example, tmp_path / "example")) / "run"


def report_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "report.json").read_text())


def count_fraction_left(path: Path) -> float:
    """Return the multiply-adds of a file's nonzero weights / those of all its weights.

    Each weight is used at every position of its convolution's output, whose size onnx infers.
    """
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    inferred = onnx.shape_inference.infer_shapes(model).graph
    sizes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*inferred.value_info, *inferred.output)
    }
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    left = total = 0
    for node in model.graph.node:
        if node.op_type not in ("Conv", "Gemm"):
            continue
        weight = weights[node.input[1]]
        positions = int(np.prod(sizes[node.output[0]][2:]))
        left += positions * np.count_nonzero(weight)
        total += positions * weight.size
    assert total > 0
    return float(left / total)


@pytest.mark.parametrize("file", ["model.dense.onnx", "baseline/model.dense.onnx"])
def test_exported_file_meets_the_budget_of_multiply_adds(run: Path, file: str):
    assert 0.98 * TARGET <= count_fraction_left(run / file) <= TARGET


def test_report_has_the_multiply_adds_of_its_files(run: Path):
    report = report_of(run)
    for network, file in (
        ("pruned", "model.dense.onnx"),
        ("baseline", "baseline/model.dense.onnx"),
    ):
        assert report[network]["macs_left"] == pytest.approx(count_fraction_left(run / file))
    elements = {layer["name"]: layer["elements"] for layer in report["layers"]}
    uses = {layer["name"]: layer["uses"] for layer in report["layers"]}
    assert (uses["stem.weight"], uses["classifier.weight"]) == (64, 1)
    assert report["model"]["macs"] == sum(uses[name] * elements[name] for name in uses)
    assert [entry["macs_left"] for entry in report["trail"]][-1] <= TARGET


def test_baseline_has_one_point_and_a_reason_for_no_gain(run: Path):
    baseline = report_of(run)["baseline"]
    assert (baseline["gain"], baseline["curve"], baseline["num_trainings"]) == (None, None, 1)
    for key in ("gain", "curve", "compression_at_equal_accuracy"):
        assert "target_macs" in baseline["reasons"][key]


def test_multiply_adds_are_shown_beside_compression(run: Path, capsys: Any):
    shown = f"{100 * report_of(run)['pruned']['macs_left']:.1f} %"
    summary = (run.parent / "summary.txt").read_text()
    for page in (summary, (run / "report.md").read_text()):
        line = next(line for line in page.splitlines() if "multiply-adds left" in line)
        assert shown in line
        assert "At the same number of multiply-adds, the baseline" in page
    assert f"multiply-adds left {shown}" in " ".join((run / "report.html").read_text().split())
    trail = invoke(capsys, "trail", run)
    assert "multiply-adds" in trail.out
    handoff = invoke(capsys, "handoff", run, "--out", run.parent / "handoff")
    assert handoff.code == 0, handoff.err
    page = (run.parent / "handoff" / "HANDOFF.md").read_text()
    assert f"{shown} of the multiply-adds are left" in page


def test_gate_on_multiply_adds_passes_or_fails_with_advice(run: Path, capsys: Any):
    report = run / "report.json"
    assert invoke(capsys, "gate", report, "--max-macs", TARGET).code == 0
    junit = run.parent / "gates.xml"
    failed = invoke(capsys, "gate", report, "--max-macs", 0.1, "--junit", junit)
    assert failed.code == 7
    assert "gate failed: max_macs: limit 0.1, value 0." in failed.err
    assert "--target-macs 0.1" in failed.err
    assert 'name="max_macs"' in junit.read_text()


def forge_fraction(report: dict[str, Any]) -> None:
    report["pruned"]["macs_left"] = 0.01


def forge_baseline(report: dict[str, Any]) -> None:
    report["baseline"]["macs_left"] = 0.9


def forge_total(report: dict[str, Any]) -> None:
    report["model"]["macs"] *= 10
    report["pruned"]["macs_left"] /= 10


def forge_uses_of_one_layer(report: dict[str, Any]) -> None:
    report["layers"][0]["uses"] = 1


def forge_all_uses(report: dict[str, Any]) -> None:
    """Count the sparsest layer a thousand times as often, in all numbers that follow."""
    layers = report["layers"]
    sparsest = min(layers, key=lambda layer: layer["nonzeros"] / layer["elements"])
    sparsest["uses"] *= 1000
    report["model"]["macs"] = sum(layer["uses"] * layer["elements"] for layer in layers)
    for network, key in (("pruned", "nonzeros"), ("baseline", "baseline_nonzeros")):
        macs = sum(layer["uses"] * layer[key] for layer in layers)
        report[network]["macs_left"] = macs / report["model"]["macs"]
    report["cost_budget"]["measured"] = report["pruned"]["macs_left"]


@pytest.mark.parametrize(
    ("forge", "key"),
    [
        (forge_fraction, "pruned.macs_left is "),
        (forge_baseline, "baseline.macs_left is "),
        (forge_total, "model.macs is "),
        (forge_uses_of_one_layer, "model.macs is "),
        (forge_all_uses, "the number of uses of"),
    ],
)
def test_forged_multiply_adds_are_refused(
    run: Path, capsys: Any, forge: Callable[[dict[str, Any]], None], key: str
):
    report = report_of(run)
    forge(report)
    (run / "report.json").write_text(json.dumps(report))
    (run / "SHA256SUMS").unlink()
    result = invoke(capsys, "gate", run / "report.json", "--max-macs", 0.5)
    assert result.code == 3
    assert key in result.err


def test_fraction_without_uses_is_not_evaluated(run: Path, capsys: Any):
    report = report_of(run)
    for layer in report["layers"]:
        layer["uses"] = None
    report["pruned"]["macs_left"] = 0.01
    report["cost_budget"] = None
    (run / "report.json").write_text(json.dumps(report))
    result = invoke(capsys, "gate", run / "report.json", "--max-macs", 0.5)
    assert result.code == 7
    assert "max_macs: limit 0.5, value none (not measured" in result.err


@pytest.mark.slow
def test_export_without_data_keeps_the_multiply_adds(run: Path, capsys: Any):
    before = report_of(run)
    (run.parent / "digits.npz").unlink()
    result = invoke(capsys, "export", run, "--format", "packed")
    assert result.code == 0, result.err
    after = report_of(run)
    assert "packed" in [file["encoding"] for file in after["pruned"]["files"]]
    assert after["pruned"]["macs_left"] == before["pruned"]["macs_left"]
    assert after["model"]["macs"] == before["model"]["macs"]


@pytest.mark.slow
def test_pick_takes_the_baseline_of_equal_multiply_adds(run: Path, capsys: Any):
    last = report_of(run)["trail"][-1]
    result = invoke(capsys, "pick", run, last["entry"])
    assert result.code == 0, result.err
    assert "The baseline is the run's own, with the same multiply-adds and epochs" in result.err
    picked = report_of(run / f"pick-{last['entry']:03}")
    assert picked["pruned"]["macs_left"] == pytest.approx(last["macs_left"])
    assert picked["baseline"]["gain"] is None


@pytest.mark.slow
def test_pick_of_a_denser_entry_finds_no_baseline_and_no_curve(run: Path, capsys: Any):
    result = invoke(capsys, "pick", run, 1, "--baseline", "curve")
    assert (result.code, "baseline.mode" in result.err) == (3, True)
    result = invoke(capsys, "pick", run, 1)
    assert result.code == 0, result.err
    assert "No baseline: the run has none of this size" in result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--target-macs", 0.0001), "multiply-adds are out of reach"),
        (("--target-macs", 0.2, "--set", "budget.target_sparsity=0.5"), "contradict each other"),
        (("--target-macs", 0.2, "--set", "method.lambda=1e-6"), "contradict each other"),
        (("--target-macs", 1), "target_macs"),
        (("--target-macs", 20), "target_macs"),
        (("--target-macs", 0.2, "--baseline", "curve"), "baseline.mode"),
        (("--target-macs", 0.2, "--min-gain", 1), "gates.min_gain"),
        (("--target-macs", 0.2, "--max-macs", 0.1), "gates.max_macs"),
    ],
)
def test_target_macs_that_cannot_be_met_is_refused(
    run: Path, capsys: Any, options: tuple[Any, ...], message: str
):
    folder = run.parent
    arguments = (folder / "model.onnx", "--out", folder / "other", *options)
    result = invoke(capsys, "run", *arguments)
    assert result.code == 3, result.err
    assert message in result.err
    assert not (folder / "other").exists()


def test_two_budgets_on_the_command_line_are_a_usage_error(run: Path, capsys: Any):
    model = run.parent / "model.onnx"
    for option, value in (("--target-compression", 5), ("--accuracy-budget", 0.01)):
        result = invoke(capsys, "run", model, "--target-macs", TARGET, option, value)
        assert (result.code, "contradict each other" in result.err) == (2, True)


def test_model_that_meets_the_budget_already_is_refused(run: Path, capsys: Any):
    folder = run.parent
    shutil.copy(run / "model.dense.onnx", folder / "model.onnx")
    arguments = (folder / "model.onnx", "--out", folder / "other", "--target-macs", 0.3)
    result = invoke(capsys, "run", *arguments)
    assert result.code == 3
    assert "multiply-adds already" in result.err
