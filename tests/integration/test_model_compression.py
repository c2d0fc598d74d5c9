"""A model with most of its weights outside kernels: by how much it is called smaller, and what a gate says to that."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from ltp_pipeline.demo import copy_example
from ltp_pipeline.runner.run import run
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.system.progress import SilentReporter
from tests.support.cli import invoke
from tests.support.runs import skip_slow_parts

TABLE = 200_000
OPTIONS = (
    "--epochs",
    1,
    "--finetune-epochs",
    1,
    "--target-compression",
    5,
    "--no-baseline",
    "--max-drop",
    0.9,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with a large table, one row of which is added to the scores and changes none."""
    folder = tmp_path_factory.mktemp("table")
    copy_example(folder)
    model = onnx.load(folder / "model.onnx")
    table = np.random.default_rng(0).normal(0, 1e-6, (TABLE // 10, 10)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(table, "table"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([7]), "row"))
    scores = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = ["before" if name == scores else name for name in node.output]
    model.graph.node.append(helper.make_node("Gather", ["table", "row"], ["more"], name="gather"))
    model.graph.node.append(helper.make_node("Add", ["before", "more"], [scores], name="add"))
    onnx.save(model, folder / "model.onnx")
    options = {
        "train": {"epochs": 1, "finetune_epochs": 1},
        "budget": {"target_compression": 5},
        "export": {"formats": ["packed", "dense", "deploy", "deploy-dense"]},
        "baseline": {"mode": "none"},
        "gates": {"max_drop": 0.9},
    }
    settings = load_settings(folder / "model.onnx", options=options)
    with skip_slow_parts():
        run(folder / "model.onnx", settings, folder / "run", SilentReporter())
    return folder


def report_of(folder: Path) -> dict:
    return json.loads((folder / "run" / "report.json").read_text())


def floats_of(path: Path) -> list[np.ndarray]:
    arrays = [numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer]
    return [a for a in arrays if a.dtype == np.float32]


def test_model_compression_counts_all_float_weights(finished: Path):
    report = report_of(finished)
    elements = sum(a.size for a in floats_of(finished / "model.onnx"))
    nonzeros = sum(np.count_nonzero(a) for a in floats_of(finished / "run" / "model.dense.onnx"))
    assert report["model"]["float_elements"] == elements
    assert report["pruned"]["model_compression"] == pytest.approx(elements / nonzeros)
    assert report["pruned"]["compression"] == pytest.approx(5, rel=0.01)
    assert report["pruned"]["model_compression"] < 1.5
    assert report["model"]["largest_other_weights"][0] == {"name": "table", "elements": TABLE}


def test_trail_entries_have_both_compressions_and_a_hash(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    (entry,) = report_of(finished)["trail"]
    assert entry["model_compression"] == pytest.approx(
        report_of(finished)["pruned"]["model_compression"], rel=0.001
    )
    gate = invoke(capsys, "gate", finished / "run" / "report.json")
    assert f"passed  file {entry['file']}: " in gate.out
    shown = invoke(capsys, "trail", finished / "run").out
    assert "full model" in shown
    assert f"{entry['model_compression']:.2f}×" in shown


def test_run_shows_both_compressions_and_warns(finished: Path, capsys: pytest.CaptureFixture[str]):
    again = invoke(capsys, "run", finished / "model.onnx", "--out", finished / "run", *OPTIONS)
    assert again.code == 0, again.err
    assert "compression, layer weights" in again.out
    assert "compression, full model" in again.out
    assert "warning: Layer weights are only" in again.err
    inspected = invoke(capsys, "inspect", finished / "model.onnx").out
    assert f"{TABLE:,} of Gather" in inspected


def test_gate_min_model_compression_names_the_largest_table(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    report = finished / "run" / "report.json"
    assert invoke(capsys, "gate", report, "--min-compression", 4.9).code == 0
    failed = invoke(capsys, "gate", report, "--min-compression", 4.9, "--min-model-compression", 2)
    assert failed.code == 7
    assert re.search(r"\bmin_model_compression: .*\b2\b.*\b1\.\d", failed.err)
    assert failed.err.count("min_model_compression") == 2


def test_validate_packed_file_has_the_same_counts(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    packed = finished / "run" / "model.packed.onnx"
    validated = invoke(capsys, "validate", packed, "--data", finished / "digits.npz", "--json")
    assert json.loads(validated.out)["model_compression"] == pytest.approx(
        report_of(finished)["pruned"]["model_compression"]
    )
