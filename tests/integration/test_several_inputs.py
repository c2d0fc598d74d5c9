"""Models with several inputs, from the command line to the scripts of the handoff."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from ltp_pipeline.cli import app
from tests.support.bare import run_bare
from tests.support.cli import invoke
from tests.support.models import masked_tokens, run_onnxruntime, two_inputs
from tests.support.runs import skip_slow_parts

VECTOR, TOKENS = "in.put", "tokens:0"
SETTINGS = f"""
[data]
path = "data.npz"
padding_value = 2
[data.inputs."{VECTOR}"]
scale = 0.00392156862745098
mean = 0.5
[train]
epochs = 2
finetune_epochs = 1
[budget]
target_compression = 2
"""
SIZES = {"train": 300, "val": 80, "test": 80}


def write_pair(folder: Path) -> None:
    """Write bytes that are scaled and tokens that are not; labels are predictions of the model."""
    rng, model, arrays = np.random.default_rng(0), two_inputs(VECTOR, TOKENS), {}
    for split, count in SIZES.items():
        vector = rng.integers(0, 256, (count, 4), np.uint8)
        tokens = rng.integers(1, 12, (count, 3), np.int32)
        scaled = vector.astype(np.float32) / np.float32(255) - np.float32(0.5)
        scores = run_onnxruntime(model, {VECTOR: scaled, TOKENS: tokens.astype(np.int64)})[0]
        arrays |= {
            f"{VECTOR}_{split}": vector,
            f"{TOKENS}_{split}": tokens,
            f"y_{split}": scores.argmax(axis=1),
        }
    write_example(folder, model, arrays, SETTINGS)


def write_sequences(folder: Path) -> None:
    """Write sequences of 2 to 7 tokens, for which the mask is computed."""
    rng, model, arrays = np.random.default_rng(0), masked_tokens(), {}
    for split, count in SIZES.items():
        offsets = np.concatenate([[0], np.cumsum(rng.integers(2, 8, count))])
        ids = rng.integers(1, 12, offsets[-1], np.int32)
        scores = [
            run_onnxruntime(
                model,
                {"ids": row[None].astype(np.int64), "ids_mask": np.ones((1, len(row)), np.int64)},
            )[0]
            for row in np.split(ids, offsets[1:-1])
        ]
        labels = np.concatenate(scores).argmax(axis=1)
        arrays |= {f"ids_{split}": ids, f"ids_{split}_offsets": offsets, f"y_{split}": labels}
    write_example(
        folder,
        model,
        arrays,
        re.sub(r"\[data\.inputs.*?(?=\[train)", "", SETTINGS, flags=re.DOTALL),
    )


def write_example(
    folder: Path, model: onnx.ModelProto, arrays: dict[str, np.ndarray], settings: str
) -> None:
    """Write model, data and settings into a new folder."""
    folder.mkdir()
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "data.npz", **arrays)
    (folder / "ltp.toml").write_text(settings)


@pytest.fixture(
    scope="module", params=[write_pair, write_sequences], ids=lambda write: write.__name__
)
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its data, and their finished run."""
    write: Callable[[Path], None] = request.param
    folder = tmp_path_factory.mktemp("several") / write.__name__
    write(folder)
    arguments = [
        "run",
        folder / "model.onnx",
        "--out",
        folder / "run",
        "--no-baseline",
        "--max-drop",
        0.9,
    ]
    with skip_slow_parts(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["ltp-pipeline", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            app.main()
    assert ended.value.code in (None, 0)
    return folder


def test_gate_checks_the_files_of_a_handoff(finished: Path, capsys: pytest.CaptureFixture[str]):
    result = invoke(
        capsys, "gate", finished / "run" / "handoff" / "report.json", "--min-compression", 1.9
    )
    assert result.code == 0, result.err
    assert "model.packed.onnx" in result.out


def select_arrays(example: np.lib.npyio.NpzFile, prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file whose names have a prefix, without it."""
    keys = [key for key in example.files if key.startswith(prefix)]
    return {key.removeprefix(prefix): example[key] for key in keys}


def test_preprocess_without_this_package_equals_the_example(finished: Path, tmp_path: Path):
    folder = finished / "run" / "handoff"
    example = np.load(folder / "example.npz")
    np.savez(tmp_path / "samples.npz", **select_arrays(example, "samples/"))
    paths = (tmp_path / "samples.npz", tmp_path / "inputs.npz")
    process = run_bare(tmp_path, ("numpy",), folder / "preprocess.py", *paths)
    assert process.returncode == 0, process.stderr
    actual = np.load(tmp_path / "inputs.npz")
    expected = select_arrays(example, "input/")
    names = {info.name for info in onnx.load(finished / "model.onnx").graph.input}
    assert set(actual.files) == set(expected) == names
    for name, x in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (x.dtype, x.shape)
        assert actual[name].tobytes() == x.tobytes()


def test_verify_without_this_package_passes(finished: Path, tmp_path: Path):
    process = run_bare(
        tmp_path, ("numpy", "onnxruntime"), finished / "run" / "handoff" / "verify.py"
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "All checks passed." in process.stdout


def test_handoff_page_code_runs(finished: Path):
    folder = finished / "run" / "handoff"
    code = re.search(r"```python\n(.*?)\n```", (folder / "HANDOFF.md").read_text(), re.DOTALL)[1]
    assert len(code.splitlines()) == 5
    command = [sys.executable, "-c", f"{code}\nprint(scores.shape)"]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert process.stdout.strip() == "(1, 3)", process.stderr


def test_validate_with_the_handoff_alone_repeats_the_accuracy(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    folder = finished / "run" / "handoff"
    result = invoke(
        capsys, "validate", folder / "model.packed.onnx", "--data", finished / "data.npz", "--json"
    )
    assert result.code == 0, result.err
    report = json.loads((folder / "report.json").read_text())
    (file,) = (f for f in report["pruned"]["files"] if f["encoding"] == "packed")
    assert json.loads(result.out)["accuracy"]["value"] == file["accuracy"]["value"]


def test_handoff_example_samples_are_those_of_the_test_split(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    result = invoke(
        capsys, "handoff", finished / "run", "--out", tmp_path / "out", "--example-samples", 5
    )
    assert result.code == 0, result.err
    example, data = np.load(tmp_path / "out" / "example.npz"), np.load(finished / "data.npz")
    samples = select_arrays(example, "samples/")
    assert samples
    for name, array in samples.items():
        if not name.endswith("_offsets"):
            assert np.array_equal(array, data[f"{name}_test"][: len(array)])
    assert all(len(example[key]) == 5 for key in example.files if key.startswith("input/"))
    assert (
        run_bare(tmp_path, ("numpy", "onnxruntime"), tmp_path / "out" / "verify.py").returncode == 0
    )


def test_export_without_the_data_verifies_further_files(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    copy = shutil.copytree(finished, tmp_path / "copy")
    (finished / "data.npz").rename(finished / "away.npz")
    try:
        result = invoke(capsys, "export", copy / "run", "--format", "dense")
    finally:
        (finished / "away.npz").rename(finished / "data.npz")
    assert result.code == 0, result.err
    assert (copy / "run" / "handoff" / "model.dense.onnx").is_file()
