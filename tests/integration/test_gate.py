"""`gate` on a whole run: numbers that were forged to agree are found out by the files, or by measuring them again."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ltp_pipeline.results.read_write import read
from ltp_pipeline.results.values import PairedCounts
from ltp_pipeline.run_directory.names import REPORT_JSON, SUMS
from tests.support.cli import invoke


@pytest.fixture
def run(finished: Path) -> Path:
    return finished / "run"


def edited(run: Path, report: dict[str, Any]) -> None:
    """Put a report in the place of the run's, and no list of hashes."""
    (run / REPORT_JSON).write_text(json.dumps(report), encoding="utf-8")
    (run / SUMS).unlink(missing_ok=True)


def forged(run: Path) -> None:
    """A report that agrees with itself and says that nothing was lost."""
    report = json.loads((run / REPORT_JSON).read_text())
    original, pruned = report["original"]["accuracy"], report["pruned"]
    right = round(original["value"] * original["samples"])
    counts = PairedCounts(right, 0, 0, original["samples"] - right)
    for part in (pruned, *pruned["files"]):
        part["accuracy"] = dict(original)
    for file in pruned["files"]:
        file["paired_counts"] = vars(counts)
    pruned |= {"drop": 0.0, "drop_interval": counts.interval()}
    report |= {"baseline": None, "difference": None, "gates": [], "status": "no-gates"}
    for layer in report["layers"]:
        layer["baseline_nonzeros"] = None
    del report["settings"]["gates"]
    edited(run, report)


def test_a_run_passes_with_and_without_data(run: Path, capsys: Any) -> None:
    for given in ((), ("--data", run.parent / "digits.npz")):
        result = invoke(capsys, "gate", run / REPORT_JSON, *given)
        assert result.code == 0, result.err
    assert "ltp measured again" in result.err
    assert "global-magnitude measured again" in result.err
    handed = invoke(capsys, "gate", run / "handoff" / REPORT_JSON)
    assert handed.code == 0, handed.err


def test_the_counts_of_outcomes_are_those_of_the_test_split(run: Path) -> None:
    report = read(run / REPORT_JSON)
    for file in report.files:
        assert file.paired_counts is not None
        assert file.paired_counts.samples == 400
        assert (file.paired_counts.first_fraction, file.paired_counts.second_fraction) == (
            report.original.value,
            file.value,
        )
    assert report.difference is not None
    assert report.difference.paired_counts is not None
    assert report.difference.paired_counts.interval() == report.difference.interval


def test_what_is_measured_is_judged(run: Path, capsys: Any) -> None:
    forged(run)
    limits = ("--max-drop", 0.001)
    assert invoke(capsys, "gate", run / REPORT_JSON, *limits).code == 0
    result = invoke(capsys, "gate", run / REPORT_JSON, *limits, "--data", run.parent / "digits.npz")
    assert result.code == 7, result.err
    assert "gate failed: max_drop" in result.err


def test_without_the_original_its_reported_accuracy_stands(run: Path, capsys: Any) -> None:
    shutil.copy(run.parent / "model.onnx", run.parent / "moved.onnx")
    report = json.loads((run / REPORT_JSON).read_text())
    report["model"]["path"] = "nowhere.onnx"
    edited(run, report)
    given = ("gate", run / REPORT_JSON, "--max-drop", 0.5, "--data", run.parent / "digits.npz")
    alone = invoke(capsys, *given)
    assert (alone.code, "the original was not measured again" in alone.err) == (0, True), alone.err
    assert invoke(capsys, *given, "--confidence", 0.9).code == 7
    beside = invoke(capsys, *given, "--confidence", 0.9, "--against", run.parent / "moved.onnx")
    assert (beside.code, "was not measured" in beside.err) == (0, False), beside.err
    wrong = invoke(capsys, *given, "--against", run / "model.dense.onnx")
    assert (wrong.code, "another hash" in wrong.err) == (3, True)


def test_nothing_is_measured_of_files_that_are_not_the_reports(run: Path, capsys: Any) -> None:
    shutil.copy(run / "model.dense.onnx", run / "model.packed.onnx")
    result = invoke(capsys, "gate", run / REPORT_JSON, "--data", run.parent / "digits.npz")
    assert (result.code, "nothing was measured" in result.err) == (7, True)


def test_a_report_alone_cannot_be_measured(run: Path, capsys: Any) -> None:
    assert (
        invoke(
            capsys, "gate", run / REPORT_JSON, "--report-only", "--data", run.parent / "digits.npz"
        ).code
        == 2
    )


def sparser(report: dict[str, Any]) -> None:
    """Every count says that a layer has one nonzero less."""
    model, layer = report["model"], report["layers"][0]
    layer["nonzeros"] -= 1
    pruned = report["pruned"]
    for key in ("nonzeros", "model_nonzeros"):
        pruned[key] -= 1
    for file in pruned["files"]:
        file["nonzeros"] -= 1
    pruned["compression"] = model["layer_elements"] / pruned["nonzeros"]
    pruned["sparsity"] = 1 - pruned["nonzeros"] / model["layer_elements"]
    pruned["model_compression"] = model["float_elements"] / pruned["model_nonzeros"]
    report["sizes"].pop("entropy_bound")


def without_a_kernel(report: dict[str, Any]) -> None:
    """A kernel that is not listed, and sums without it."""
    model, gone = report["model"], report["layers"].pop(0)
    model["num_layers"] -= 1
    model["layer_elements"] -= gone["elements"]
    for network, nonzeros in (
        ("pruned", gone["nonzeros"]),
        ("baseline", gone["baseline_nonzeros"]),
    ):
        part = report[network]
        part["nonzeros"] -= nonzeros
        for file in part["files"]:
            file["nonzeros"] -= nonzeros
        part["compression"] = model["layer_elements"] / part["nonzeros"]
        part["sparsity"] = 1 - part["nonzeros"] / model["layer_elements"]
    report["sizes"].pop("entropy_bound")


def lighter(report: dict[str, Any]) -> None:
    file = report["pruned"]["files"][0]
    file["bytes"] -= 1
    report["sizes"]["sparse"] -= 1


def more_floats(report: dict[str, Any]) -> None:
    report["model"]["float_elements"] *= 2
    for network in ("pruned", "baseline"):
        report[network]["model_compression"] *= 2


def other_encoding(report: dict[str, Any]) -> None:
    first, second = report["pruned"]["files"][:2]
    first["encoding"], second["encoding"] = second["encoding"], first["encoding"]
    report["sizes"] = {}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (sparser, "nonzeros"),
        (without_a_kernel, "the list of layers is without 'stem.weight'"),
        (lighter, "pruned.files.0.bytes"),
        (more_floats, "model.float_elements"),
        (other_encoding, "pruned.files.0.encoding"),
    ],
)
def test_what_the_files_say_otherwise_is_refused(
    run: Path, capsys: Any, change: Any, key: str
) -> None:
    report = json.loads((run / REPORT_JSON).read_text())
    report |= {"gates": [], "status": "no-gates"}
    del report["settings"]["gates"]
    change(report)
    edited(run, report)
    read(run / REPORT_JSON)  # it agrees with itself
    result = invoke(capsys, "gate", run / REPORT_JSON, "--max-drop", 0.5)
    assert (result.code, key in result.err) == (3, True), result.err
