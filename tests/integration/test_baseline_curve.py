"""The baseline as a curve: chosen, trained, kept, measured, and judged by its gain."""

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from ltp_pipeline.runner import baseline as baseline_curve
from ltp_pipeline.stages.train import loop
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.phase import Phase
from tests.support.cli import invoke, says_finished
from tests.support.runs import (
    MAX_DROP,
    TRAIN,
    copy_rewritten_run,
    copy_unwritten_run,
    prune_example,
)

CURVE = {"mode": "curve"}
ONE_FILE = {"formats": ["sparse"]}


@pytest.fixture(scope="module")
def curved(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared run with one file and a curve, which is what nothing said means for so small a network."""
    folder = tmp_path_factory.mktemp("curve") / "example"
    return copy_rewritten_run(shared, folder, export=ONE_FILE, baseline={"mode": "auto"})


@pytest.fixture
def run(curved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(curved, tmp_path / "example")) / "run"


def report_of(run: Path) -> dict:
    return json.loads((run / "report.json").read_text())


def accuracy_of(path: Path, data: Path) -> float:
    """By onnxruntime and numpy alone."""
    test = np.load(data)
    session = onnxruntime.InferenceSession(path)
    x = test["x_test"].astype(np.float32) * 0.0625
    (scores,) = session.run(None, {session.get_inputs()[0].name: x.reshape(len(x), 1, 8, 8)})
    return float((scores.argmax(1) == test["y_test"]).mean())


def again(run: Path, *options: object) -> tuple[object, ...]:
    """The command line of the run; what is not given is as it was."""
    epochs = (
        "--epochs",
        TRAIN["epochs"],
        "--finetune-epochs",
        TRAIN["finetune_epochs"],
        "--export",
        "sparse",
    )
    return (
        "run",
        run.parent / "model.onnx",
        "--out",
        run,
        *epochs,
        "--max-drop",
        MAX_DROP,
        *options,
    )


def test_curve_points_match_their_files(run: Path):
    report = report_of(run)
    points = report["baseline"]["curve"]
    assert 1 < len(points) <= 4
    assert report["baseline"]["num_trainings"] == len(points)
    assert points[0]["path"] == "baseline/model.sparse.onnx"
    assert points[0]["nonzeros"] == report["pruned"]["nonzeros"]
    sums = (run / "SHA256SUMS").read_text()
    for point in points:
        assert f"{point['sha256']}  {point['path']}\n" in sums
        assert point["compression"] == report["model"]["layer_elements"] / point["nonzeros"]
        assert accuracy_of(run / point["path"], run.parent / "digits.npz") == pytest.approx(
            point["accuracy"]
        )


def test_curve_files_give_the_reported_gain(run: Path):
    baseline, pruned = report_of(run)["baseline"], report_of(run)["pruned"]
    data = run.parent / "digits.npz"
    wanted = accuracy_of(run / "model.sparse.onnx", data)
    points = sorted(
        (p["compression"], accuracy_of(run / p["path"], data)) for p in baseline["curve"]
    )
    reached = [i for i, (_, accuracy) in enumerate(points) if accuracy >= wanted]
    if not reached:
        assert baseline["gain_bound"] == "at least"
        assert baseline["gain"] == pytest.approx(pruned["compression"] / points[0][0])
    elif reached[-1] == len(points) - 1:
        assert baseline["gain_bound"] == "at most"
        assert baseline["gain"] == pytest.approx(pruned["compression"] / points[-1][0])
    else:
        (near, high), (far, low) = points[reached[-1] : reached[-1] + 2]
        equal = math.exp(np.interp(-wanted, [-high, -low], np.log([near, far])))
        assert baseline["gain_bound"] is None
        assert baseline["gain"] == pytest.approx(pruned["compression"] / equal)


def test_curve_points_are_trained_equally_long(run: Path):
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    keys = {line["key"] for line in lines if line["stage"] == "curve"}
    assert keys == {f"baseline-{n}" for n in range(2, len(report_of(run)["baseline"]["curve"]) + 1)}
    for key in ("baseline", *keys):
        assert {line["epoch"] for line in lines if line["key"] == key} == {0, 1, 2}


def test_gate_min_gain_passes_or_fails(run: Path, capsys: pytest.CaptureFixture[str]):
    baseline = report_of(run)["baseline"]
    sure = baseline["gain_bound"] != "at most"
    assert invoke(
        capsys, "gate", run / "report.json", "--min-gain", 0.9 * baseline["gain"]
    ).code == (0 if sure else 7)
    assert (
        invoke(capsys, "gate", run / "report.json", "--min-gain", 1.1 * baseline["gain"]).code == 7
    )


def test_gate_absent_curve_file_passes_and_changed_fails(
    run: Path, capsys: pytest.CaptureFixture[str]
):
    path = run / "baseline" / "2" / "model.sparse.onnx"
    path.write_bytes(path.read_bytes() + b" ")
    changed = invoke(capsys, "gate", run / "report.json")
    assert (changed.code, "baseline/2/model.sparse.onnx" in changed.err) == (7, True)
    path.unlink()
    assert invoke(capsys, "gate", run / "report.json").code == 0


def test_run_finished_curve_trains_nothing_again(
    run: Path, capsys: pytest.CaptureFixture[str], steps: list[str]
):
    for mode in ("auto", "curve", "quick", "none"):
        result = invoke(capsys, *again(run, "--baseline", mode))
        assert result.code == 0, result.err
        assert says_finished(result.err)
    assert not steps
    assert report_of(run)["baseline"]["curve"]


def test_run_damaged_curve_file_is_written_again(
    run: Path, capsys: pytest.CaptureFixture[str], steps: list[str]
):
    path = run / "baseline" / "2" / "model.sparse.onnx"
    before = path.read_bytes()
    path.write_bytes(b"")
    assert invoke(capsys, *again(run, "--baseline", "curve")).code == 0
    assert path.read_bytes() == before
    assert not steps


def test_run_without_curve_removes_its_files(run: Path, capsys: pytest.CaptureFixture[str]):
    result = invoke(capsys, *again(run, "--baseline", "quick", "--export", "dense"))
    assert result.code == 0, result.err
    assert "baseline/2/model.sparse.onnx" in result.err
    assert not list((run / "baseline").glob("?/*.onnx"))
    assert report_of(run)["baseline"]["curve"] is None


def test_run_curve_after_quick_reuses_the_first_point(
    shared: Path, tmp_path: Path, curved: Path, capsys: pytest.CaptureFixture[str], steps: list[str]
):
    run = copy_rewritten_run(shared, tmp_path / "example", export=ONE_FILE) / "run"
    assert invoke(capsys, *again(run, "--min-gain", 1e-6)).code in (0, 7)  # which asks for it
    assert set(steps) == {
        p["path"].replace("/model.sparse.onnx", "").replace("/", "-") for p in points(run)[1:]
    }
    assert points(run) == points(curved / "run")


def points(run: Path) -> list[dict]:
    return report_of(run)["baseline"]["curve"]


def test_run_resumed_within_a_point_gives_the_same_bytes(
    shared: Path, tmp_path: Path, curved: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, step, steps_done = (
        copy_unwritten_run(shared, tmp_path / "example"),
        loop._train_step,
        [],
    )

    def stopped(context: RunContext, forward: object, phase: Phase, *rest: object) -> None:
        steps_done.append(phase.key)
        if steps_done.count("baseline-2") == 25 and steps_done[-1] == "baseline-2":
            raise KeyboardInterrupt
        step(context, forward, phase, *rest)

    monkeypatch.setattr(loop, "_train_step", stopped)
    with pytest.raises(KeyboardInterrupt):
        prune_example(folder, export=ONE_FILE, baseline=CURVE)
    prune_example(folder, export=ONE_FILE, baseline=CURVE)
    assert steps_done.count("baseline-2") < 2 * steps_done.count(
        "baseline-3"
    )  # it went on from a checkpoint
    for point in points(curved / "run"):
        assert (folder / "run" / point["path"]).read_bytes() == (
            curved / "run" / point["path"]
        ).read_bytes()


def test_baseline_auto_skips_a_long_curve_permanently(
    shared: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    steps: list[str],
):
    run = copy_unwritten_run(shared, tmp_path / "example") / "run"
    monkeypatch.setattr(baseline_curve, "MAX_CURVE_SECONDS", 0.0)
    first = invoke(capsys, *again(run))
    assert first.code == 0, first.err
    assert re.search(r"--baseline curve .*\b3 points\b", first.err)
    assert report_of(run)["baseline"]["curve"] is None
    monkeypatch.setattr(baseline_curve, "MAX_CURVE_SECONDS", 1e9)
    assert says_finished(invoke(capsys, *again(run)).err)
    assert invoke(capsys, *again(run, "--export", "dense")).code == 0
    assert report_of(run)["baseline"]["curve"] is None
    assert not steps


def test_baseline_auto_measures_a_short_curve(run: Path):
    assert points(run)
    assert json.loads((run / "manifest.json").read_text())["curve"] is True


def test_curve_diverging_point_ends_the_curve_only(
    shared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    run, step = copy_unwritten_run(shared, tmp_path / "example") / "run", loop._train_step

    def diverging(
        context: RunContext,
        forward: object,
        phase: Phase,
        optimizer: object,
        at: object,
        *rest: object,
    ) -> None:
        step(context, forward, phase, optimizer, at, *rest)
        if phase.key == "baseline-2":
            at.loss = math.nan

    monkeypatch.setattr(loop, "_train_step", diverging)
    result = invoke(capsys, *again(run, "--baseline", "curve"))
    assert result.code == 0, result.err
    assert re.search(r"\bcurve\b.*\bloss\b", result.err)
    assert len(points(run)) == 1


def test_pick_same_size_reuses_the_curve(
    run: Path, capsys: pytest.CaptureFixture[str], steps: list[str]
):
    result = invoke(capsys, "pick", run, 2)
    assert result.code == 0, result.err
    assert set(steps) == {"finetune-002"}
    ours, theirs = points(run / "pick-002"), points(run)
    assert [p["sha256"] for p in ours] == [p["sha256"] for p in theirs]
    assert invoke(capsys, "pick", run, 2, "--min-gain", 1e-6).code in (0, 7)
    assert set(steps) == {"finetune-002"}


def test_pick_one_point_curve_satisfies_min_gain(
    shared: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    steps: list[str],
):
    """Of the run, and of an entry that has its own."""
    monkeypatch.setattr(baseline_curve, "next_compression", lambda *_: None)
    run = (
        copy_rewritten_run(
            shared, tmp_path / "example", export=ONE_FILE, baseline=CURVE, gates={"min_gain": 1e-6}
        )
        / "run"
    )
    assert len(points(run)) == 1
    assert invoke(capsys, "pick", run, 2).code in (0, 7)
    assert len(points(run / "pick-002")) == 1
    assert invoke(capsys, "pick", run, 1, "--baseline", "curve").code in (0, 7)
    steps.clear()
    again = invoke(capsys, "pick", run, 1)
    assert (again.code in (0, 7), steps) == (True, []), again.err


@pytest.mark.slow
def test_pick_other_size_with_min_gain_measures_a_curve(
    run: Path, capsys: pytest.CaptureFixture[str], steps: list[str]
):
    refused = invoke(capsys, "pick", run, 1, "--min-gain", 1e-6, "--baseline", "quick")
    assert (refused.code, steps) == (3, []), refused.err
    assert invoke(capsys, "pick", run, 1, "--min-gain", 1e-6).code in (0, 7)
    assert {"finetune-001", "baseline", "baseline-2"} <= set(steps)
    assert points(run / "pick-001")


def test_export_keeps_the_curve(run: Path, capsys: pytest.CaptureFixture[str], steps: list[str]):
    before = points(run)
    assert invoke(capsys, "export", run, "--format", "dense").code == 0
    assert points(run) == before
    (run.parent / "digits.npz").unlink()
    assert invoke(capsys, "export", run, "--format", "packed").code == 0
    assert points(run) == before
    assert invoke(capsys, "gate", run / "report.json").code == 0
    assert not steps


def test_handoff_of_baseline_has_its_report_and_gates(
    run: Path, capsys: pytest.CaptureFixture[str]
):
    assert invoke(
        capsys, *again(run, "--min-gain", 1e-6, "--set", "gates.min_compression=5")
    ).code in (0, 7)
    result = invoke(capsys, "handoff", run, "--network", "baseline")
    folder = run / "handoff-baseline"
    assert (result.code, result.out.strip()) == (0, str(folder)), result.err
    content, whole = report_of(folder), report_of(run)
    assert content["baseline"] is None
    assert content["pruned"]["accuracy"] == whole["baseline"]["accuracy"]
    assert content["pruned"]["method"] == "global-magnitude"
    assert [g["name"] for g in content["gates"]] == ["max_drop", "min_compression"]
    assert "gates that compare with a baseline are skipped: min_gain" in content["notes"]
    judged = invoke(capsys, "gate", folder / "report.json")
    assert judged.code == 0, judged.err
    verified = subprocess.run(
        [sys.executable, folder / "verify.py"], capture_output=True, text=True
    )
    assert verified.returncode == 0, verified.stdout
    nonzeros = sum(layer["nonzeros"] for layer in content["layers"])
    assert nonzeros == whole["baseline"]["nonzeros"]
    compared = invoke(capsys, "gate", folder / "report.json", "--min-gain", 1)
    assert (compared.code, "min_gain" in compared.err) == (7, True), compared.err
    shipped = (folder / "model.sparse.onnx").read_bytes()
    assert shipped == (run / "baseline" / "model.sparse.onnx").read_bytes()


def test_handoff_of_picked_baseline_has_no_budget(run: Path, capsys: pytest.CaptureFixture[str]):
    assert invoke(capsys, "pick", run, 2).code == 0
    for folder in (run, run / "pick-002"):
        content = report_of(folder)
        content["settings"]["budget"]["accuracy_budget"] = -1.0  # which nothing is within
        (folder / "report.json").write_text(json.dumps(content))
        assert invoke(capsys, "handoff", folder, "--network", "baseline").code == 0
    assert report_of(run / "handoff-baseline")["budget_not_met"]
    assert report_of(run / "pick-002" / "handoff-baseline")["budget_not_met"] is None


def test_handoff_missing_baseline_is_rejected(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = (
        copy_rewritten_run(shared, tmp_path / "example", export=ONE_FILE, baseline={"mode": "none"})
        / "run"
    )
    result = invoke(capsys, "handoff", run, "--network", "baseline")
    assert (result.code, "--no-baseline" in result.err) == (
        3,
        True,
    )
    assert invoke(capsys, "handoff", run, "--network", "else").code == 2
    assert not (run / "handoff-baseline").exists()


def test_baseline_excluded_classifier_keeps_its_weights(
    shared: Path, tmp_path: Path, steps: list[str], capsys: pytest.CaptureFixture[str]
):
    spared = {"mode": "quick", "exclude_classifier": True}
    run = copy_rewritten_run(shared, tmp_path / "example", export=ONE_FILE, baseline=spared) / "run"
    assert set(steps) == {"baseline-spared"}  # and not the weights of the other kind
    report = report_of(run)
    (classifier,) = [layer for layer in report["layers"] if layer["name"] == "classifier.weight"]
    assert classifier["baseline_nonzeros"] == classifier["elements"]
    assert report["baseline"]["nonzeros"] == report["pruned"]["nonzeros"]
    assert report["baseline"]["method"] == "global-magnitude, classifier excluded"
    steps.clear()
    other = invoke(capsys, *again(run, "--baseline", "quick"))
    assert (other.code, says_finished(other.err), steps) == (0, False, [])
    assert report_of(run)["baseline"]["method"] == "global-magnitude"


@pytest.mark.parametrize("mode", ["quick", "none"])
def test_run_min_gain_without_curve_is_rejected_untrained(
    example: Path, capsys: pytest.CaptureFixture[str], mode: str
):
    arguments = ("--min-gain", 1.5, "--baseline", mode)
    result = invoke(capsys, "run", example / "model.onnx", "--out", example / "run", *arguments)
    assert (result.code, "gates.min_gain" in result.err) == (3, True)
    assert not (example / "run").exists()


def test_contradicting_baseline_options_are_a_usage_error(
    example: Path, capsys: pytest.CaptureFixture[str]
):
    arguments = (
        "run",
        example / "model.onnx",
        "--out",
        example / "run",
        "--no-baseline",
        "--baseline",
    )
    assert invoke(capsys, *arguments, "curve").code == 2
    assert invoke(capsys, "pick", example, 1, "--no-baseline", "--baseline", "quick").code == 2
    assert invoke(capsys, "run", example / "model.onnx", "--baseline", "much").code == 3
