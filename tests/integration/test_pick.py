"""`pick`: another entry of the trail, with the run's own baseline where it fits and gates of its own; `trail` of it."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.run_directory.run_directory import RunDirectory
from tests.support.cli import Result, invoke, says_finished
from tests.support.runs import changed_manifest, copy_rewritten_run


@pytest.fixture(scope="module")
def judged(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared run with one file and a gate of its own."""
    folder = tmp_path_factory.mktemp("pick") / "example"
    return (
        copy_rewritten_run(shared, folder, export={"formats": ["sparse"]}, gates={"max_drop": 0.9})
        / "run"
    )


@pytest.fixture
def finished(judged: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(judged, tmp_path / "run"))


def report_of(picked: Path) -> dict:
    return json.loads((picked / "report.json").read_text())


def pick(capsys, *arguments: object) -> Result:
    return invoke(capsys, "pick", *arguments)


def test_pick_reuses_the_baseline_of_the_run(finished: Path, capsys, steps: list[str]):
    result = pick(capsys, finished, 2)
    assert result.code == 0, result.err
    assert "The baseline is the run's own" in result.err
    assert set(steps) == {"finetune-002"}
    theirs, ours = report_of(finished)["baseline"], report_of(finished / "pick-002")["baseline"]
    assert ours["accuracy"] == theirs["accuracy"]
    assert [f["sha256"] for f in ours["files"]] == [f["sha256"] for f in theirs["files"]]


def test_pick_trains_a_baseline_on_request_only(finished: Path, capsys, steps: list[str]):
    result = pick(capsys, finished, 1)
    assert result.code == 0, result.err
    assert re.search(r"--baseline quick\b.*\b2 epochs\b", result.err)
    assert set(steps) == {"finetune-001"}
    report = report_of(finished / "pick-001")
    assert (report["baseline"], report["difference"]) == (None, None)
    assert "pick --baseline curve" in report["reasons"]["baseline"]
    steps.clear()
    assert pick(capsys, finished, 1, "--baseline", "quick", "--quiet").code == 0
    assert set(steps) == {"baseline"}
    report = report_of(finished / "pick-001")
    assert report["baseline"]["nonzeros"] == report["pruned"]["nonzeros"]
    assert sum(report["baseline"]["epochs"].values()) == sum(report["pruned"]["epochs"].values())
    steps.clear()
    assert pick(capsys, finished, 1, "--export", "dense", "--quiet").code == 0
    assert report_of(finished / "pick-001")["baseline"] is not None  # once it is there, it stays
    assert not steps


def test_pick_no_baseline_leaves_it_out(finished: Path, capsys):
    assert pick(capsys, finished, 2, "--no-baseline", "--quiet").code == 0
    assert report_of(finished / "pick-002")["baseline"] is None


def test_pick_has_its_own_gates(finished: Path, capsys):
    result = pick(capsys, finished, 1, "--min-compression", 1000)
    assert result.code == 7
    report = report_of(finished / "pick-001")
    assert [(g["name"], g["passed"]) for g in report["gates"]] == [("min_compression", False)]
    assert report_of(finished)["settings"]["gates"]["max_drop"] == 0.9
    assert pick(capsys, finished, 1).code == 0  # by those of the run
    assert [g["name"] for g in report_of(finished / "pick-001")["gates"]] == [
        "max_drop",
        "min_compression",
    ]


@pytest.mark.parametrize("other", ["nonzeros", "epochs"])
def test_pick_baseline_of_other_size_or_length_is_not_reused(
    finished: Path, capsys, steps: list[str], other: str
):
    """Told by a gate that is refused where no baseline fits."""
    weights, metadata = RunDirectory(finished).load_weights("baseline")
    if other == "nonzeros":
        metadata["nonzeros"] += 1
    else:
        metadata["epochs"]["finetune"] += 1
    RunDirectory(finished).save_weights("baseline", weights, metadata)
    demand_better_than_baseline(finished)
    result = pick(capsys, finished, 2)
    assert (result.code, steps) == (3, []), result.err


def demand_better_than_baseline(run: Path) -> None:
    set_gates(run, {"beat_baseline": True})


def set_gates(run: Path, gates: dict) -> None:
    with changed_manifest(run) as content:
        content["inputs"]["settings"]["gates"] = gates


def test_pick_gate_without_baseline_is_rejected_untrained(finished: Path, capsys, steps: list[str]):
    demand_better_than_baseline(finished)
    result = pick(capsys, finished, 1)
    assert result.code == 3
    assert "--baseline quick" in result.err
    assert pick(capsys, finished, 1, "--no-baseline", "--beat-baseline").code == 3
    assert not steps
    assert not (finished / "pick-001").exists()


def test_pick_beat_baseline_trains_one(finished: Path, capsys, steps: list[str]):
    assert pick(capsys, finished, 1, "--beat-baseline", "--quiet").code in (0, 7)
    assert set(steps) == {"finetune-001", "baseline"}


def test_pick_finished_entry_does_nothing(finished: Path, capsys, steps: list[str]):
    pick(capsys, finished, 1)
    steps.clear()
    before = {path: path.stat().st_mtime_ns for path in (finished / "pick-001").glob("model.*")}
    result = pick(capsys, finished, 1)
    assert result.code == 0, result.err
    assert str(finished / "pick-001") in result.err
    assert says_finished(result.err)
    assert "Resuming" not in result.err
    assert not steps
    assert {path: path.stat().st_mtime_ns for path in before} == before
    judged = invoke(capsys, "gate", finished / "pick-001" / "report.json")
    assert judged.code == 0, judged.err


def test_trail_of_picked_entry_marks_it_in_the_trail_of_the_run(
    finished: Path, capsys, monkeypatch
):
    pick(capsys, finished, 1, "--quiet")
    whole, picked = (
        invoke(capsys, "trail", folder) for folder in (finished, finished / "pick-001")
    )
    assert picked.code == 0, picked.err
    assert ">" not in whole.out
    assert [line[0] for line in picked.out.splitlines()[1:]] == [">", " "]
    monkeypatch.chdir(finished / "pick-001")
    for line in invoke(capsys, "trail", ".").out.splitlines()[1:]:
        assert Path(line.split()[-1]).is_file()
    rows = json.loads(invoke(capsys, "trail", ".", "--json").out)
    assert [(r["entry"], r["selected"]) for r in rows] == [(1, True), (2, False)]
    assert all(Path(r["file"]).is_file() for r in rows)


def test_trail_of_moved_picked_folder_is_rejected(finished: Path, tmp_path: Path, capsys):
    pick(capsys, finished, 1, "--quiet")
    shutil.move(finished / "pick-001", tmp_path / "alone")
    result = invoke(capsys, "trail", tmp_path / "alone")
    assert (result.code, str(tmp_path / "alone") in result.err) == (3, True)


def test_pick_from_picked_folder_uses_the_run(finished: Path, capsys):
    pick(capsys, finished, 1, "--quiet")
    assert pick(capsys, finished / "pick-001", 2, "--quiet").code == 0
    assert (finished / "pick-002" / "report.json").is_file()


def test_progress_and_trail_name_the_metric(example: Path, capsys):
    data = dict(np.load(example / "digits.npz"))
    np.savez(
        example / "digits.npz", **{name: a for name, a in data.items() if name.startswith("x_")}
    )
    options = (
        "--epochs",
        1,
        "--finetune-epochs",
        0,
        "--no-baseline",
        "--export",
        "sparse",
        "--max-drop",
        0.9,
    )
    result = invoke(capsys, "run", example / "model.onnx", "--out", example / "run", *options)
    name = json.loads((example / "run" / "report.json").read_text())["metric"]["name"]
    assert name != "top-1"
    progress = next(line for line in result.err.splitlines() if line.startswith("Learn thresholds"))
    assert f"{name} (val) " in progress
    assert "accuracy" not in progress
    heading = invoke(capsys, "trail", example / "run").out.splitlines()[0]
    assert f" {name} (val) " in heading


def test_export_of_repeated_pick_succeeds(finished: Path, capsys):
    """What the rules of the run found is not taken for a wish."""
    for _ in range(2):
        assert pick(capsys, finished, 1, "--quiet").code == 0
    result = invoke(capsys, "export", finished / "pick-001", "--format", "dense")
    assert result.code == 0, result.err
    assert (finished / "pick-001" / "model.dense.onnx").is_file()


@pytest.mark.parametrize(
    ("gate", "remedy"), [({"min_gain": 1.5}, "curve"), ({"beat_baseline": True}, "quick")]
)
def test_pick_gate_of_the_run_without_baseline_is_named_as_such(
    finished: Path, capsys, steps: list[str], gate: dict, remedy: str
):
    set_gates(finished, gate)
    result = pick(capsys, finished, 1, "--no-baseline")
    assert (result.code, steps) == (3, [])
    assert f"the run's gate {next(iter(gate))} " in result.err
    assert f"--baseline {remedy}" in result.err


def test_pick_own_gate_without_baseline_is_named_as_own(finished: Path, capsys):
    result = pick(capsys, finished, 1, "--no-baseline", "--min-gain", 1.5)
    assert (result.code, "min_gain" in result.err, "the run's gate" in result.err) == (
        3,
        True,
        False,
    )
