"""`gate` on a finished run: forged numbers differ from the files, or from measuring again."""

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


def replace_report(run: Path, report: dict[str, Any]) -> None:
    """Replace the report of a run, and remove the list of hashes."""
    (run / REPORT_JSON).write_text(json.dumps(report), encoding="utf-8")
    (run / SUMS).unlink(missing_ok=True)


def forge_report(run: Path) -> None:
    """Replace the report by a consistent one in which no accuracy is lost."""
    report = json.loads((run / REPORT_JSON).read_text())
    original, pruned = report["original"]["accuracy"], report["pruned"]
    num_correct = round(original["value"] * original["samples"])
    counts = PairedCounts(num_correct, 0, 0, original["samples"] - num_correct)
    for part in (pruned, *pruned["files"]):
        part["accuracy"] = dict(original)
    for file in pruned["files"]:
        file["paired_counts"] = vars(counts)
    pruned |= {"drop": 0.0, "drop_interval": counts.compute_interval()}
    report |= {"baseline": None, "difference": None, "gates": [], "status": "no-gates"}
    for layer in report["layers"]:
        layer["baseline_nonzeros"] = None
    del report["settings"]["gates"]
    replace_report(run, report)


def test_gate_finished_run_passes_with_and_without_data(run: Path, capsys: Any) -> None:
    for options in ((), ("--data", run.parent / "digits.npz")):
        result = invoke(capsys, "gate", run / REPORT_JSON, *options)
        assert result.code == 0, result.err
    assert "ltp measured again" in result.err
    assert "global-magnitude measured again" in result.err
    of_handoff = invoke(capsys, "gate", run / "handoff" / REPORT_JSON)
    assert of_handoff.code == 0, of_handoff.err


def test_paired_counts_are_those_of_the_test_split(run: Path) -> None:
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
    assert report.difference.paired_counts.compute_interval() == report.difference.interval


def test_gate_with_data_checks_the_measured_accuracy(run: Path, capsys: Any) -> None:
    forge_report(run)
    limits = ("--max-drop", 0.001)
    assert invoke(capsys, "gate", run / REPORT_JSON, *limits).code == 0
    result = invoke(capsys, "gate", run / REPORT_JSON, *limits, "--data", run.parent / "digits.npz")
    assert result.code == 7, result.err
    assert "max_drop" in result.err


def test_gate_without_the_original_uses_its_reported_accuracy(run: Path, capsys: Any) -> None:
    shutil.copy(run.parent / "model.onnx", run.parent / "moved.onnx")
    report = json.loads((run / REPORT_JSON).read_text())
    report["model"]["path"] = "nowhere.onnx"
    replace_report(run, report)
    command = ("gate", run / REPORT_JSON, "--max-drop", 0.5, "--data", run.parent / "digits.npz")
    alone = invoke(capsys, *command)
    assert (alone.code, "the original was not measured" in alone.err) == (0, True), alone.err
    assert invoke(capsys, *command, "--confidence", 0.9).code == 7
    beside = invoke(capsys, *command, "--confidence", 0.9, "--against", run.parent / "moved.onnx")
    assert (beside.code, "was not measured" in beside.err) == (0, False), beside.err
    wrong = invoke(capsys, *command, "--against", run / "model.dense.onnx")
    assert (wrong.code, "model.dense.onnx" in wrong.err) == (3, True)


def test_gate_files_with_other_hashes_are_not_measured(run: Path, capsys: Any) -> None:
    shutil.copy(run / "model.dense.onnx", run / "model.packed.onnx")
    result = invoke(capsys, "gate", run / REPORT_JSON, "--data", run.parent / "digits.npz")
    assert (result.code, "measured again" in result.err) == (7, False)
    assert "file model.packed.onnx: " in result.err


def test_gate_report_only_with_data_is_a_usage_error(run: Path, capsys: Any) -> None:
    assert (
        invoke(
            capsys, "gate", run / REPORT_JSON, "--report-only", "--data", run.parent / "digits.npz"
        ).code
        == 2
    )


def drop_macs(report: dict[str, Any]) -> None:
    """Drop the multiply-adds, which would have to be computed again."""
    report["model"]["macs"] = None
    for network in ("pruned", "baseline"):
        report[network]["macs_left"] = None


def remove_nonzero(report: dict[str, Any]) -> None:
    """Let every count say that a layer has one nonzero less."""
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
    drop_macs(report)
    report["sizes"].pop("raw_values_bound")


def remove_layer(report: dict[str, Any]) -> None:
    """Remove a layer from the list and from all sums."""
    model = report["model"]
    layer = report["layers"].pop(0)
    model["num_layers"] -= 1
    model["layer_elements"] -= layer["elements"]
    drop_macs(report)
    for network, nonzeros in (
        ("pruned", layer["nonzeros"]),
        ("baseline", layer["baseline_nonzeros"]),
    ):
        part = report[network]
        part["nonzeros"] -= nonzeros
        for file in part["files"]:
            file["nonzeros"] -= nonzeros
        part["compression"] = model["layer_elements"] / part["nonzeros"]
        part["sparsity"] = 1 - part["nonzeros"] / model["layer_elements"]
    report["sizes"].pop("raw_values_bound")


def remove_byte(report: dict[str, Any]) -> None:
    file = report["pruned"]["files"][0]
    file["bytes"] -= 1
    report["sizes"]["sparse"] -= 1


def double_floats(report: dict[str, Any]) -> None:
    report["model"]["float_elements"] *= 2
    for network in ("pruned", "baseline"):
        report[network]["model_compression"] *= 2


def swap_encodings(report: dict[str, Any]) -> None:
    first, second = report["pruned"]["files"][:2]
    first["encoding"], second["encoding"] = second["encoding"], first["encoding"]
    report["sizes"] = {}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (remove_nonzero, "nonzeros"),
        (remove_layer, "stem.weight"),
        (remove_byte, "pruned.files.0.bytes"),
        (double_floats, "model.float_elements"),
        (swap_encodings, "pruned.files.0.encoding"),
    ],
)
def test_gate_report_that_differs_from_the_files_is_rejected(
    run: Path, capsys: Any, change: Any, key: str
) -> None:
    report = json.loads((run / REPORT_JSON).read_text())
    report |= {"gates": [], "status": "no-gates"}
    del report["settings"]["gates"]
    change(report)
    replace_report(run, report)
    read(run / REPORT_JSON)  # the report is consistent
    result = invoke(capsys, "gate", run / REPORT_JSON, "--max-drop", 0.5)
    assert (result.code, key in result.err) == (3, True), result.err
