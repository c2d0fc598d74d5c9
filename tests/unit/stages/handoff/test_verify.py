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
from tests.support.bare import bare
from tests.support.finished import RECIPE, classifier, finished, inputs_of, two
from tests.support.sample_report import report_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return handoff.run(report_of(finished(tmp_path / "run")), tmp_path / "run", tmp_path / "out")


def verify(folder: Path) -> "subprocess.CompletedProcess[str]":
    return bare(folder.parent, ("numpy", "onnxruntime"), folder / "verify.py")


def rehash(folder: Path, *names: str) -> None:
    """Let the list of hashes agree with these files again, as someone who exchanges them would."""
    sums = dict(
        reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines()
    )
    sums |= {name: sha256_file(folder / name) for name in names}
    (folder / "SHA256SUMS").write_text(
        "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    )


def test_verify_passes_where_there_is_nothing_but_numpy_and_onnxruntime(folder: Path):
    moved = shutil.move(folder, folder.parent / "elsewhere")
    done = verify(moved)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "All is well."
    assert len(lines) == 10 + 2 + 1
    assert "ok      model.packed.onnx is the file that was handed over" in lines
    assert (
        sum(
            "outputs differ from the example's by" in line and "0.001 is allowed" in line
            for line in lines
        )
        == 2
    )


@pytest.mark.parametrize(
    "name", ["model.packed.onnx", "report.json", "example.npz", "preprocess.py", "HANDOFF.md"]
)
def test_verify_tells_a_file_that_was_changed(folder: Path, name: str):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    done = verify(folder)
    assert done.returncode == 1
    assert (
        f"FAILED  {name} is not the file that was handed over: its hash is another" in done.stdout
    )
    if name == "model.packed.onnx":
        assert "FAILED  model.packed.onnx is not run" in done.stdout
        assert "ok      model.sparse.onnx: outputs" in done.stdout


@pytest.mark.parametrize("name", ["model.packed.onnx", "SHA256SUMS", "example.npz"])
def test_verify_tells_a_file_that_is_missing(folder: Path, name: str):
    (folder / name).unlink()
    done = verify(folder)
    assert done.returncode == 1
    assert f"FAILED  {name}" in done.stdout
    assert "Traceback" not in done.stderr


def scaled(path: Path, factor: float) -> None:
    """Multiply the weights and bias of a model."""
    changed = onnx.load(path)
    for tensor in changed.graph.initializer:
        tensor.raw_data = (onnx.numpy_helper.to_array(tensor) * np.float32(factor)).tobytes()
    onnx.save(changed, path)


def test_verify_tells_a_model_that_computes_something_else(folder: Path):
    for factor, code in ((1.0005, 0), (1.01, 1)):
        scaled(folder / "model.packed.onnx", factor)
        rehash(folder, "model.packed.onnx")
        done = verify(folder)
        assert done.returncode == code, done.stdout
    assert "FAILED  model.packed.onnx: outputs differ from the example's by 0.01" in done.stdout


def test_verify_needs_every_input(tmp_path: Path):
    out = handoff.run(two(tmp_path / "run"), tmp_path / "run", tmp_path / "out")
    example = dict(np.load(out / "example.npz"))
    np.savez(
        out / "example.npz",
        **{key: array for key, array in example.items() if key != "input/tokens"},
    )
    rehash(out, "example.npz")
    done = verify(out)
    assert done.returncode == 1
    assert "input/tokens" in done.stdout


def test_verify_says_what_it_needs(folder: Path):
    done = bare(folder.parent, ("numpy",), folder / "verify.py")
    assert done.returncode == 1
    assert "pip install numpy onnxruntime" in done.stderr


@pytest.mark.parametrize(("name", "limit"), [("fc.weight", 2e-2), ("ltp/0.values", 1e-3)])
def test_half_precision_has_a_wider_tolerance_unless_values_are_only_stored_so(
    tmp_path: Path, name: str, limit: float
):
    changed = classifier()
    changed.graph.initializer.append(
        onnx.numpy_helper.from_array(np.zeros(3, np.float16), name + ".half")
    )
    onnx.save(changed, tmp_path / "model.onnx")
    made = handoff_example.make(inputs_of(RECIPE), [tmp_path / "model.onnx"], None)
    assert made.tolerance == limit == np.load(io.BytesIO(made.content))["tolerance"]


def test_outputs_are_compared_by_the_largest_value_and_what_is_no_float_must_be_equal():
    apart = handoff_verify.apart
    a = np.float32([1, -200, np.nan, np.inf])
    assert apart(a.copy(), a) == 0
    assert apart(np.float32([2, -200, np.nan, np.inf]), a) == pytest.approx(1 / 200)
    assert apart(np.float32([1, -200, 0, np.inf]), a) == np.inf
    assert apart(np.float32([1, -200, np.nan, 5]), a) == np.inf
    assert apart(np.float32([1, np.nan, np.nan, np.inf]), a) == np.inf
    assert apart(a[:3], a) == np.inf
    assert apart(np.zeros(2, np.float32), np.float32([0, 0.1])) == pytest.approx(1)
    assert apart(np.int64([1, 2]), np.int64([1, 2])) == 0
    assert apart(np.int64([1, 3]), np.int64([1, 2])) == np.inf
    assert apart(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32)) == 0
