"""A handoff of a real run: the commands and the code of its page work as they stand."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import ltp_pipeline
from tests.support.bare import run_bare
from tests.support.cli import invoke
from tests.support.runs import copy_rewritten_run

FILES = tuple(
    (graph + name, values)
    for graph in ("", "deploy-")
    for name, values in (("sparse", "exact"), ("packed", "exact"), ("packed", "int8"))
)


@pytest.fixture(scope="module")
def finished(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared run's folder with everything that can be handed off."""
    folder = tmp_path_factory.mktemp("handoff") / "example"
    export = {"formats": ["sparse", "packed", "deploy-sparse", "deploy"], "weight_storage": "int8"}
    gates = {"max_drop": 0.9, "min_compression": 2}
    return copy_rewritten_run(shared, folder, export=export, baseline={"mode": "none"}, gates=gates)


def report_of(finished: Path) -> dict:
    return json.loads((finished / "run" / "handoff" / "report.json").read_text())


def test_handoff_checksums_hold(finished: Path):
    folder = finished / "run" / "handoff"
    done = subprocess.run(
        ["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    listed = {line.partition(": ")[0] for line in done.stdout.splitlines()}
    assert listed == {p.name for p in folder.iterdir()} - {"SHA256SUMS"}


def test_handoff_example_code_of_the_page_runs(finished: Path):
    folder = finished / "run" / "handoff"
    code = re.search(r"```python\n(.*?)\n```", (folder / "HANDOFF.md").read_text(), re.DOTALL)[1]
    assert len(code.splitlines()) == 5
    command = [sys.executable, "-c", f"{code}\nprint(x.shape, x.dtype, scores.shape)"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.stdout.strip() == "(1, 1, 8, 8) float32 (1, 10)", done.stderr


def test_handoff_scripts_run_without_the_package(finished: Path, tmp_path: Path):
    folder = finished / "run" / "handoff"
    done = run_bare(tmp_path, ("numpy", "onnxruntime"), folder / "verify.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(
        f"ok      {f['path']}: outputs" in done.stdout
        for f in report_of(finished)["pruned"]["files"]
    )
    stored = np.load(finished / "digits.npz")["x_test"]
    np.save(tmp_path / "stored.npy", stored)
    done = run_bare(
        tmp_path,
        ("numpy",),
        folder / "preprocess.py",
        tmp_path / "stored.npy",
        tmp_path / "input.npy",
    )
    assert done.returncode == 0, done.stderr
    assert np.array_equal(
        np.load(tmp_path / "input.npy"), stored.astype(np.float32) * np.float32(0.0625)
    )


def test_handoff_page_describes_samples_and_version(finished: Path):
    page = (finished / "run" / "handoff" / "HANDOFF.md").read_text()
    stored = np.load(finished / "digits.npz")["x_train"]
    assert f"Samples are stored as `{stored.dtype}` of shape `1×8×8`, values 0 to 16." in page
    assert f"The model was made by ltp-pipeline {ltp_pipeline.__version__}." in page
    assert "pip install -c constraints.txt ." in page


def test_handoff_example_has_real_samples_only_if_requested(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    real = np.load(finished / "digits.npz")["x_test"]
    generated = np.load(finished / "run" / "handoff" / "example.npz")["samples/image"]
    assert not any((sample == real).all(axis=(1, 2, 3)).any() for sample in generated)
    result = invoke(
        capsys, "handoff", finished / "run", "--out", tmp_path / "out", "--example-samples", 5
    )
    assert result.code == 0, result.err
    assert np.array_equal(np.load(tmp_path / "out" / "example.npz")["samples/image"], real[:5])
    assert (
        "**The samples are real data**: the first 5 of the test split."
        in (tmp_path / "out/HANDOFF.md").read_text()
    )
    assert (
        run_bare(tmp_path, ("numpy", "onnxruntime"), tmp_path / "out" / "verify.py").returncode == 0
    )


def test_handoff_samples_of_changed_data_are_rejected(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    shutil.copy(finished / "digits.npz", tmp_path)
    arrays = dict(np.load(finished / "digits.npz"))
    np.savez(finished / "digits.npz", **{**arrays, "x_test": arrays["x_test"][::-1]})
    try:
        result = invoke(
            capsys, "handoff", finished / "run", "--out", tmp_path / "out", "--example-samples", 5
        )
    finally:
        shutil.copy(tmp_path / "digits.npz", finished)
    assert result.code == 3
    assert "--example-samples" in result.err
    assert not (tmp_path / "out").exists()


def test_validate_in_a_handoff_repeats_the_accuracy(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    folder = finished / "run" / "handoff"
    for file in report_of(finished)["pruned"]["files"][1:3]:
        result = invoke(
            capsys, "validate", folder / file["path"], "--data", finished / "digits.npz", "--json"
        )
        assert result.code == 0, result.err
        assert json.loads(result.out)["accuracy"] == file["accuracy"]


def test_gate_in_a_handoff_checks_its_files(finished: Path, capsys: pytest.CaptureFixture[str]):
    result = invoke(
        capsys, "gate", finished / "run" / "handoff" / "report.json", "--min-compression", 2
    )
    assert result.code == 0, result.err
    assert all(f"file {f['path']}" in result.out for f in report_of(finished)["pruned"]["files"])


def test_report_of_a_handoff_names_the_weight_storage_of_each_file(finished: Path):
    report = report_of(finished)
    files = {
        ("deploy-" * (f["graph"] == "deploy") + f["encoding"], f["weight_storage"]): f
        for f in report["pruned"]["files"]
    }
    assert tuple(files) == FILES
    assert report["pruned"]["accuracy"]["top1"] == min(
        f["accuracy"]["top1"] for f in files.values()
    )
    assert (
        files["packed", "int8"]["bytes"]
        < files["packed", "exact"]["bytes"]
        < files["sparse", "exact"]["bytes"]
    )
    assert files["packed", "int8"]["path"] == "model.packed.rounded-int8.onnx"
    sizes = {name: report["sizes"][name] for name in ("packed", "packed, int8")}
    assert list(sizes.values()) == [
        files["packed", values]["bytes"] for values in ("exact", "int8")
    ]
    assert report["model"]["inputs"] == [
        {"name": "image", "type": "FLOAT", "shape": ["batch", 1, 8, 8]}
    ]
    assert report["data"]["inputs"]["image"]["sample_shape"] == [1, 8, 8]
    assert any("9 of 9 BatchNormalization folded" in note for note in report["notes"])


def test_deploy_graph_gives_the_same_scores(finished: Path):
    x = np.load(finished / "digits.npz")["x_test"][:64].astype(np.float32) * np.float32(0.0625)
    scores = [
        onnxruntime.InferenceSession(
            finished / "run" / name, providers=["CPUExecutionProvider"]
        ).run(None, {"image": x})[0]
        for name in ("model.sparse.onnx", "model.deploy.sparse.onnx")
    ]
    assert np.abs(scores[0] - scores[1]).max() <= 1e-5 * np.abs(scores[0]).max()


def test_handoff_to_another_folder_is_identical(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    result = invoke(capsys, "handoff", finished / "run", "--out", tmp_path / "out")
    assert result.code == 0, result.err
    first, second = (
        {p.name: p.read_bytes() for p in folder.iterdir()}
        for folder in (finished / "run" / "handoff", tmp_path / "out")
    )
    assert first == second


def test_handoff_into_a_foreign_folder_is_rejected(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    result = invoke(capsys, "handoff", finished / "run", "--out", finished)
    assert result.code == 3
    assert "--out" in result.err


def test_run_options_for_files_and_storage_are_checked(
    example: Path, capsys: pytest.CaptureFixture[str]
):
    sparse = ("--export", "deploy-sparse", "--export", "sparse")
    result = invoke(capsys, "run", example / "model.onnx", *sparse, "--weight-storage", "fp16")
    assert result.code == 3
    assert "packed" in result.err
    result = invoke(capsys, "run", example / "model.onnx", "--weight-storage", "int4")
    assert result.code == 3
    assert "export.weight_storage" in result.err
