"""`method.block`: learned, held, exported, compared and told in blocks of four output channels."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.demo import copy_example
from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.graph.storage import read_model
from tests.support.cli import invoke
from tests.support.runs import TRAIN, prune_example, skip_slow_parts

SINGLE = "classifier.weight"  # ten classes
TARGET = 10


@pytest.fixture(scope="module")
def blocky(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example after a short run in blocks."""
    folder = tmp_path_factory.mktemp("blocks") / "example"
    copy_example(folder)
    with skip_slow_parts():
        prune_example(
            folder,
            method={"block": "4x1"},
            budget={"target_compression": TARGET},
            export={"formats": ["packed"]},
            gates={"min_compression": TARGET, "max_drop": 0.9},
        )
    return folder


@pytest.fixture
def run(blocky: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(blocky, tmp_path / "example")) / "run"


def report_of(run: Path) -> dict:
    return json.loads((run / "report.json").read_text())


def kept(run: Path, file: str) -> dict[str, np.ndarray]:
    """Where the kernels of a file are not zero."""
    names = [layer["name"] for layer in report_of(run)["layers"]]
    return {name: array != 0 for name, array in read_tensors(read_model(run / file), names).items()}


def has_whole_blocks(mask: np.ndarray) -> bool:
    rows = mask.reshape(len(mask) // 4, 4, -1)
    return np.array_equal(rows.all(1), rows.any(1))


@pytest.mark.parametrize(
    "file", ["model.packed.onnx", "baseline/model.packed.onnx", "trail/001.onnx"]
)
def test_files_hold_complete_blocks_of_four_channels(run: Path, file: str):
    blocks = kept(run, file)
    assert all(has_whole_blocks(mask) for name, mask in blocks.items() if name != SINGLE)
    assert {k["name"] for k in report_of(run)["layers"] if k["block"] is None} == {SINGLE}


def test_target_compression_is_met_to_one_block(run: Path):
    report = report_of(run)
    most = report["model"]["layer_elements"] // TARGET
    assert most - 4 < report["pruned"]["nonzeros"] <= most
    assert (
        report["pruned"]["nonzeros"] - 4
        < report["baseline"]["nonzeros"]
        <= report["pruned"]["nonzeros"]
    )
    single = report["baseline"]["unstructured"]
    blocks = kept(run, single["path"])
    assert (
        sum(int(mask.sum()) for mask in blocks.values())
        == single["nonzeros"]
        == report["pruned"]["nonzeros"]
    )
    assert not all(has_whole_blocks(mask) for name, mask in blocks.items() if name != SINGLE)
    assert f"{single['sha256']}  {single['path']}\n" in (run / "SHA256SUMS").read_text()


def test_gates_compare_with_the_baseline_in_blocks(run: Path, capsys):
    report = report_of(run)
    for name in ("report.md", "report.html"):
        page = (run / name).read_text()
        assert "global magnitude pruning in blocks" in page
        assert "Without blocks, global magnitude pruning" in page
    assert any(f"unstructured are '{SINGLE}'" in note for note in report["notes"])
    result = invoke(capsys, "gate", run / "report.json", "--beat-baseline", "--json")
    (verdict,) = [v for v in json.loads(result.out) if v["name"] == "beat_baseline"]
    compared = report["pruned"]["accuracy"]["value"] - report["baseline"]["accuracy"]["value"]
    assert verdict["value"] == pytest.approx(compared)


def test_export_keeps_the_unstructured_baseline(run: Path, capsys, steps: list[str]):
    before = report_of(run)["baseline"]["unstructured"]
    assert invoke(capsys, "export", run, "--format", "dense", "--quiet").code == 0
    assert report_of(run)["baseline"]["unstructured"] == before
    assert (run / before["path"]).is_file()
    assert steps == []


def test_pick_reuses_both_baselines(run: Path, capsys, steps: list[str]):
    result = invoke(capsys, "pick", run, TRAIN["epochs"])
    assert result.code == 0, result.err
    assert set(steps) == {f"finetune-00{TRAIN['epochs']}"}
    theirs, ours = (
        report_of(run)["baseline"],
        report_of(run / f"pick-00{TRAIN['epochs']}")["baseline"],
    )
    assert ours["unstructured"] == theirs["unstructured"]


def test_run_blocks_with_lambda_are_rejected(example: Path, capsys):
    options = ("--set", "method.block=4x1", "--set", "method.lambda=1e-6")
    result = invoke(capsys, "run", example / "model.onnx", "--out", example / "run", *options)
    assert result.code == 3
    assert "method.block" in result.err
    assert not (example / "run").exists()


def test_gate_checks_the_unstructured_file(run: Path, capsys):
    path, report = run / "report.json", report_of(run)
    asked = ("gate", path, "--max-drop", 0.9, "--quiet")
    data = run.parent / "digits.npz"
    assert invoke(capsys, *asked, "--data", data).code == 0
    single = report["baseline"]["unstructured"]
    single["nonzeros"] -= 1
    single["compression"] = report["model"]["layer_elements"] / single["nonzeros"]
    path.write_text(json.dumps(report))
    (run / "SHA256SUMS").unlink()
    result = invoke(capsys, *asked)
    assert (result.code, f"nonzeros of {single['path']}" in result.err) == (3, True)
    shutil.copy(run / "model.packed.onnx", run / single["path"])
    assert invoke(capsys, *asked).code == 7


def test_gate_wrong_unstructured_compression_is_rejected(run: Path, capsys):
    report = report_of(run)
    report["baseline"]["unstructured"]["compression"] += 1
    (run / "report.json").write_text(json.dumps(report))
    result = invoke(capsys, "gate", run / "report.json", "--max-drop", 0.9)
    assert (result.code, "baseline.unstructured.compression" in result.err) == (3, True)
