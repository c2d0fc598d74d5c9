"""verify.py of a handoff, run where nothing of this program can be imported."""

import io
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

from ltp_pipeline.stages import handoff
from ltp_pipeline.stages.handoff import example as handoff_example
from ltp_pipeline.stages.handoff import verify as handoff_verify
from ltp_pipeline.system.hashing import sha256_file
from tests.support.bare import run_bare
from tests.support.finished import RECIPE, classifier, inputs_of, write_run, write_two_inputs_run
from tests.support.sample_report import report_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return handoff.run(report_of(write_run(tmp_path / "run")), tmp_path / "run", tmp_path / "out")


def verify(folder: Path) -> "subprocess.CompletedProcess[str]":
    return run_bare(folder.parent, ("numpy", "onnxruntime"), folder / "verify.py")


def rehash(folder: Path, *names: str) -> None:
    """Let the list of hashes agree with these files again, as someone who exchanges them would."""
    sums = dict(
        reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines()
    )
    sums |= {name: sha256_file(folder / name) for name in names}
    (folder / "SHA256SUMS").write_text(
        "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    )


def test_verify_moved_folder_passes_with_numpy_and_onnxruntime_alone(folder: Path):
    moved = shutil.move(folder, folder.parent / "elsewhere")
    process = verify(moved)
    assert process.returncode == 0, process.stdout + process.stderr
    lines = process.stdout.splitlines()
    assert lines[-1] == "All checks passed."
    assert len(lines) == 10 + 2 + 1
    assert "ok      model.packed.onnx is unchanged" in lines
    assert sum("outputs differ by" in line and "(allowed: 0.001)" in line for line in lines) == 2


@pytest.mark.parametrize(
    "name", ["model.packed.onnx", "report.json", "example.npz", "preprocess.py", "HANDOFF.md"]
)
def test_verify_changed_file_fails(folder: Path, name: str):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    process = verify(folder)
    assert process.returncode == 1
    assert f"FAILED  {name} has been changed" in process.stdout
    if name == "model.packed.onnx":
        assert "FAILED  model.packed.onnx is not run" in process.stdout
        assert "ok      model.sparse.onnx: outputs" in process.stdout


@pytest.mark.parametrize("name", ["model.packed.onnx", "SHA256SUMS", "example.npz"])
def test_verify_missing_file_fails(folder: Path, name: str):
    (folder / name).unlink()
    process = verify(folder)
    assert process.returncode == 1
    assert f"FAILED  {name}" in process.stdout
    assert "Traceback" not in process.stderr


def scaled(path: Path, factor: float) -> None:
    """Multiply the weights and bias of a model."""
    changed = onnx.load(path)
    for tensor in changed.graph.initializer:
        tensor.raw_data = (onnx.numpy_helper.to_array(tensor) * np.float32(factor)).tobytes()
    onnx.save(changed, path)


def test_verify_model_with_other_weights_fails(folder: Path):
    for factor, code in ((1.0005, 0), (1.01, 1)):
        scaled(folder / "model.packed.onnx", factor)
        rehash(folder, "model.packed.onnx")
        process = verify(folder)
        assert process.returncode == code, process.stdout
    assert "FAILED  model.packed.onnx: outputs differ by 0.01" in process.stdout


def test_verify_example_without_an_input_fails(tmp_path: Path):
    out = handoff.run(write_two_inputs_run(tmp_path / "run"), tmp_path / "run", tmp_path / "out")
    example = dict(np.load(out / "example.npz"))
    np.savez(
        out / "example.npz",
        **{key: array for key, array in example.items() if key != "input/tokens"},
    )
    rehash(out, "example.npz")
    process = verify(out)
    assert process.returncode == 1
    assert "input/tokens" in process.stdout


def test_verify_without_onnxruntime_names_what_to_install(folder: Path):
    process = run_bare(folder.parent, ("numpy",), folder / "verify.py")
    assert process.returncode == 1
    assert "pip install numpy onnxruntime" in process.stderr


@pytest.mark.parametrize(("name", "limit"), [("fc.weight", 2e-2), ("ltp/0.values", 1e-3)])
def test_make_tolerance_is_wider_if_nodes_round_to_half_precision(
    tmp_path: Path, name: str, limit: float
):
    changed = classifier()
    changed.graph.initializer.append(
        onnx.numpy_helper.from_array(np.zeros(3, np.float16), name + ".half")
    )
    onnx.save(changed, tmp_path / "model.onnx")
    example = handoff_example.make_example(inputs_of(RECIPE), [tmp_path / "model.onnx"], None)
    assert example.tolerance == limit == np.load(io.BytesIO(example.content))["tolerance"]


def test_compare_outputs_floats_are_relative_to_the_largest_value() -> None:
    compare = handoff_verify.compare_outputs
    expected = np.float32([1, -200, np.nan, np.inf])
    assert compare(expected.copy(), expected) == 0
    assert compare(np.float32([2, -200, np.nan, np.inf]), expected) == pytest.approx(1 / 200)
    assert compare(np.float32([1, -200, 0, np.inf]), expected) == np.inf
    assert compare(np.float32([1, -200, np.nan, 5]), expected) == np.inf
    assert compare(np.float32([1, np.nan, np.nan, np.inf]), expected) == np.inf
    assert compare(expected[:3], expected) == np.inf
    assert compare(np.zeros(2, np.float32), np.float32([0, 0.1])) == pytest.approx(1)
    assert compare(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32)) == 0


def test_compare_outputs_integers_must_be_equal() -> None:
    compare = handoff_verify.compare_outputs
    assert compare(np.int64([1, 2]), np.int64([1, 2])) == 0
    assert compare(np.int64([1, 3]), np.int64([1, 2])) == np.inf
