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
from tests.support.bare import bare
from tests.support.cli import invoke
from tests.support.models import masked_tokens, run_onnxruntime, two_inputs
from tests.support.runs import quick

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


def pair(folder: Path) -> None:
    """Bytes that are scaled, and tokens that are not; the labels are what the model says."""
    rng, model, arrays = np.random.default_rng(0), two_inputs(VECTOR, TOKENS), {}
    for split, count in SIZES.items():
        vector, tokens = (
            rng.integers(0, 256, (count, 4), np.uint8),
            rng.integers(1, 12, (count, 3), np.int32),
        )
        scaled = vector.astype(np.float32) / np.float32(255) - np.float32(0.5)
        scores = run_onnxruntime(model, {VECTOR: scaled, TOKENS: tokens.astype(np.int64)})[0]
        arrays |= {
            f"{VECTOR}_{split}": vector,
            f"{TOKENS}_{split}": tokens,
            f"y_{split}": scores.argmax(axis=1),
        }
    _put(folder, model, arrays, SETTINGS)


def sequences(folder: Path) -> None:
    """Sequences of 2 to 7 tokens, for which the mask is made."""
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
    _put(
        folder,
        model,
        arrays,
        re.sub(r"\[data\.inputs.*?(?=\[train)", "", SETTINGS, flags=re.DOTALL),
    )


def _put(
    folder: Path, model: onnx.ModelProto, arrays: dict[str, np.ndarray], settings: str
) -> None:
    folder.mkdir()
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "data.npz", **arrays)
    (folder / "ltp.toml").write_text(settings)


@pytest.fixture(scope="module", params=[pair, sequences], ids=lambda make: make.__name__)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its data, and the run of them."""
    make: Callable[[Path], None] = request.param
    folder = tmp_path_factory.mktemp("several") / make.__name__
    make(folder)
    arguments = [
        "run",
        folder / "model.onnx",
        "--out",
        folder / "run",
        "--no-baseline",
        "--max-drop",
        0.9,
    ]
    with quick(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["ltp-pipeline", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            app.main()
    assert ended.value.code in (None, 0)
    return folder


def test_gate_judges_the_handed_over_files(made: Path, capsys: pytest.CaptureFixture[str]):
    result = invoke(
        capsys, "gate", made / "run" / "handoff" / "report.json", "--min-compression", 1.9
    )
    assert result.code == 0, result.err
    assert "passed  file model.packed.onnx" in result.out


def test_preprocess_makes_the_inputs_of_the_example_where_this_program_is_not(
    made: Path, tmp_path: Path
):
    folder = made / "run" / "handoff"
    example = np.load(folder / "example.npz")
    samples = {
        key.removeprefix("samples/"): example[key]
        for key in example.files
        if key.startswith("samples/")
    }
    np.savez(tmp_path / "samples.npz", **samples)
    done = bare(
        tmp_path,
        ("numpy",),
        folder / "preprocess.py",
        tmp_path / "samples.npz",
        tmp_path / "inputs.npz",
    )
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "inputs.npz")
    wanted = {
        key.removeprefix("input/"): example[key]
        for key in example.files
        if key.startswith("input/")
    }
    assert (
        set(found.files)
        == set(wanted)
        == {i.name for i in onnx.load(made / "model.onnx").graph.input}
    )
    for name, x in wanted.items():
        assert (found[name].dtype, found[name].shape) == (x.dtype, x.shape)
        assert found[name].tobytes() == x.tobytes()


def test_verify_runs_where_this_program_is_not(made: Path, tmp_path: Path):
    done = bare(tmp_path, ("numpy", "onnxruntime"), made / "run" / "handoff" / "verify.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All checks passed." in done.stdout


def test_the_five_lines_of_the_page_run_beside_it(made: Path):
    folder = made / "run" / "handoff"
    code = re.search(r"```python\n(.*?)\n```", (folder / "HANDOFF.md").read_text(), re.DOTALL)[1]
    assert len(code.splitlines()) == 5
    command = [sys.executable, "-c", f"{code}\nprint(scores.shape)"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.stdout.strip() == "(1, 3)", done.stderr


def test_validate_repeats_the_accuracy_from_the_handoff_alone(
    made: Path, capsys: pytest.CaptureFixture[str]
):
    folder = made / "run" / "handoff"
    result = invoke(
        capsys, "validate", folder / "model.packed.onnx", "--data", made / "data.npz", "--json"
    )
    assert result.code == 0, result.err
    report = json.loads((folder / "report.json").read_text())
    (file,) = (f for f in report["pruned"]["files"] if f["encoding"] == "packed")
    assert json.loads(result.out)["accuracy"]["value"] == file["accuracy"]["value"]


def test_real_samples_of_every_input_are_in_the_example_when_asked_for(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    result = invoke(
        capsys, "handoff", made / "run", "--out", tmp_path / "out", "--example-samples", 5
    )
    assert result.code == 0, result.err
    example, data = np.load(tmp_path / "out" / "example.npz"), np.load(made / "data.npz")
    stored = [
        key for key in example.files if key.startswith("samples/") and not key.endswith("_offsets")
    ]
    assert stored
    for key in stored:
        array = data[f"{key.removeprefix('samples/')}_test"]
        assert np.array_equal(example[key], array[: len(example[key])])
    assert all(len(example[key]) == 5 for key in example.files if key.startswith("input/"))
    assert bare(tmp_path, ("numpy", "onnxruntime"), tmp_path / "out" / "verify.py").returncode == 0


def test_further_files_are_proven_without_the_data(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    copy = shutil.copytree(made, tmp_path / "copy")
    (made / "data.npz").rename(made / "away.npz")
    try:
        result = invoke(capsys, "export", copy / "run", "--format", "dense")
    finally:
        (made / "away.npz").rename(made / "data.npz")
    assert result.code == 0, result.err
    assert (copy / "run" / "handoff" / "model.dense.onnx").is_file()
    assert "new files are proven, and not measured" in result.out + result.err
