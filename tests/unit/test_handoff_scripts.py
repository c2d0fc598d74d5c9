"""preprocess.py, example.npz and verify.py of a handoff, run where nothing of this program can be imported."""

import gzip
import io
import json
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

from ltp_pipeline.data import Data, recipe
from ltp_pipeline.errors import InputError
from ltp_pipeline.records import TensorInfo
from ltp_pipeline.report_parts import Tensor
from ltp_pipeline.stages import handoff
from ltp_pipeline.stages.handoff import example as handoff_example
from ltp_pipeline.stages.handoff import scripts as handoff_scripts
from ltp_pipeline.stages.handoff import verify as handoff_verify
from tests.support.bare import bare
from tests.support.photos import RGB, jpeg, opened, put
from tests.support.sample_report import report_of
from tests.support.samples import only
from tests.unit.test_handoff import RECIPE, classifier, finished

LABELS = np.arange(10) % 2


def model(*dims: int | str, of: str = "FLOAT") -> TensorInfo:
    return TensorInfo("image", of, ("N", *dims))


def npz(path: Path, *shape: int, dtype: Any = np.uint8) -> Path:
    x = np.random.default_rng(0).integers(0, 200, (10, *shape)).astype(dtype)
    np.savez(path / "data.npz", x_train=x, y_train=LABELS, x_val=x, y_val=LABELS)
    return path / "data.npz"


def idx(path: Path, *_: int) -> Path:
    x = np.random.default_rng(0).integers(0, 256, (10, 8, 9), np.uint8)
    for name, array in (("images-idx3", x), ("labels-idx1", LABELS.astype(np.uint8))):
        head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        put(path / "idx" / f"train-{name}-ubyte.gz", gzip.compress(head + array.tobytes()))
    return path / "idx"


def photographs(path: Path, *_: int) -> Path:
    """Of several sizes and kinds: wide, tall, grey, with a palette, with an alpha channel."""
    for i in range(10):
        picture = Image.open(io.BytesIO(jpeg(i, 20 + 3 * i, 40 - 2 * i)))
        mode = ("RGB", "L", "P", "RGBA", "RGB")[i % 5]
        put(path / "photos" / "ab"[i % 2] / "x", b"").unlink()
        picture.convert(mode).save(path / "photos" / "ab"[i % 2] / f"{i}.{'jpg' if mode == 'RGB' else 'png'}")
    return path / "photos"


COLOURS = {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
GREY = {"mean": (0.3,), "std": (0.4,)}
CASES: dict[str, tuple[Callable[..., Path], tuple[int, ...], Any, TensorInfo, dict[str, Any]]] = {
    "npz-nchw": (npz, (3, 4, 5), np.uint8, model(3, 4, 5), {"scale": 1 / 255, **COLOURS}),
    "npz-nhwc": (npz, (4, 5, 3), np.uint8, model(3, 4, 5), {"scale": 1 / 255, "layout": "NHWC", **COLOURS}),
    "npz-float64-to-nhwc": (npz, (3, 8, 8), np.float64, model(8, 8, 3), COLOURS),
    "npz-resized": (npz, (3, 9, 7), np.uint8, model(3, 4, 5), {"resize": (4, 5), "scale": 0.1}),
    "npz-nhwc-resized-floats": (npz, (9, 7, 3), np.float32, model(3, 4, 5), {"resize": (4, 5), "layout": "NHWC"}),
    "npz-grey-flattened": (npz, (4, 5), np.uint8, model(20), {"mean": (3,)}),
    "npz-colours-flattened": (npz, (4, 5, 3), np.uint8, model(60), {"layout": "NHWC", **COLOURS}),
    "npz-integers-resized": (npz, (3, 9, 7), np.int32, model(3, 4, 5, of="INT64"), {"resize": (4, 5)}),
    "npz-features": (npz, (6,), np.float32, model(6), {"mean": tuple(range(6)), "std": (2,)}),
    "npz-half": (npz, (3, 4, 5), np.uint8, model(3, 4, 5, of="FLOAT16"), {"scale": 1 / 255, **COLOURS}),
    "npz-bool": (npz, (3, 4), np.bool_, model(3, 4, of="BOOL"), {}),
    "idx": (idx, (), None, model(1, 8, 9), {"scale": 1 / 255, **GREY}),
    "idx-flattened": (idx, (), None, model(72), {"scale": 1 / 255, **GREY}),
    "images-squeezed": (photographs, (), None, RGB, {"scale": 1 / 255, **COLOURS}),
    "images-cropped": (photographs, (), None, RGB, {"crop": 0.875, "scale": 1 / 255, **COLOURS}),
    "images-cropped-oblong": (photographs, (), None, model(3, "H", "W"), {"resize": (7, 12), "crop": 0.7}),
    "images-resized": (photographs, (), None, model(3, "H", "W"), {"resize": (9, 11)}),
    "images-grey": (photographs, (), None, model(1, 8, 8), {"scale": 1 / 255, **GREY}),
    "images-rgba": (photographs, (), None, model(4, 8, 8), {"crop": 0.9}),
}


def files_of(data: Data) -> list[str]:
    """The image files of the test split, in its order."""
    images = data.test.input.samples.images
    return [images._sources[row].file for row in data.test.rows]


@pytest.mark.parametrize("case", CASES)
def test_preprocess_gives_bit_for_bit_what_training_and_measuring_saw(tmp_path: Path, case: str):
    make, shape, dtype, model_input, settings = CASES[case]
    data = opened(make(tmp_path, *shape, **({} if dtype is None else {"dtype": dtype})), model_input, **settings)
    expected = only(data.test.read(np.arange(len(data.test))))
    kept = recipe.of_report(json.loads(json.dumps({"recipe": recipe.of_data(data).plain()})))
    kind = handoff_example.input_type(kept, model_input.type)
    script = put(tmp_path / "preprocess.py", handoff_scripts.preprocess(kept, kind).encode())
    pillow = "from PIL" in script.read_text()
    stored = data.test.input.samples.take(data.test.rows)
    np.save(tmp_path / "samples.npy", stored)
    given = files_of(data) if kept.form else [tmp_path / "samples.npy"]
    assert pillow == (case.startswith("images") or "resize" in settings)
    done = bare(tmp_path, ("numpy", *["PIL"] * pillow), script, *given, tmp_path / "input.npy")
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "input.npy")
    expected = expected.astype(kind)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()
    assert found.flags.c_contiguous
    assert kept.low <= stored.min() <= stored.max() <= kept.high


def test_samples_of_another_type_or_shape_are_refused_by_preprocess(tmp_path: Path):
    data = opened(npz(tmp_path, 3, 4, 5), model(3, 4, 5), scale=1 / 255)
    script = put(tmp_path / "preprocess.py", handoff_scripts.preprocess(recipe.of_data(data), "float32").encode())
    for wrong in (np.zeros((3, 4, 5)), np.zeros((2, 4, 5, 3), np.uint8)):
        np.save(tmp_path / "samples.npy", wrong)
        done = bare(tmp_path, ("numpy",), script, tmp_path / "samples.npy", tmp_path / "input.npy")
        assert done.returncode == 1
        assert "stored ones were uint8 of shape (3, 4, 5)" in done.stderr
    np.save(tmp_path / "samples.npy", np.zeros((3, 4, 5), np.uint8))
    assert bare(tmp_path, ("numpy",), script, tmp_path / "samples.npy", tmp_path / "one.npy").returncode == 0
    assert np.load(tmp_path / "one.npy").shape == (1, 3, 4, 5)


def test_the_range_is_that_of_all_samples(tmp_path: Path):
    x = np.zeros((3, 10, 4), np.float32)
    x[1, 3, 1], x[2, 8, 2] = -1.5, 7
    named = {
        f"{key}_{part}": v
        for part, *pair in zip(("train", "val", "test"), x, [LABELS] * 3, strict=True)
        for key, v in zip("xy", pair, strict=True)
    }
    np.savez(tmp_path / "data.npz", **named)
    kept = recipe.of_data(opened(tmp_path / "data.npz", model(4)))
    assert (kept.low, kept.high) == (-1.5, 7)
    made = kept.generate(50, seed=1)
    assert (made.dtype, made.shape) == (np.float32, (50, 4))
    assert -1.5 <= made.min() < -1 < 6 < made.max() <= 7


@pytest.mark.parametrize(
    "change",
    [
        {"stored": {"type": "object", "shape": [1], "range": [0, 1]}},
        {"stored": {"type": "uint8", "shape": [1], "range": [9, 1]}},
        {"stored": {"type": "uint8'); import os", "shape": [1], "range": [0, 1]}},
        {"type": "U9"},
        {"image": {"mode": "'); import os", "size": [1, 1], "crop": None}},
        {"resize": [1]},
    ],
    ids=str,
)
def test_a_report_that_cannot_be_is_refused(change: dict[str, Any]):
    with pytest.raises(InputError, match="how samples are stored"):
        recipe.of_report({"recipe": RECIPE | change})


def test_a_report_without_a_recipe_is_refused_and_nothing_written(tmp_path: Path):
    report = finished(tmp_path / "run")
    del report["data"]["recipe"]
    with pytest.raises(InputError, match="how samples are stored"):
        handoff.run(report_of(report), tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return handoff.run(report_of(finished(tmp_path / "run")), tmp_path / "run", tmp_path / "out")


def verify(folder: Path) -> "subprocess.CompletedProcess[str]":
    return bare(folder.parent, ("numpy", "onnxruntime"), folder / "verify.py")


def rehash(folder: Path, *names: str) -> None:
    """Let the list of hashes agree with these files again, as someone who exchanges them would."""
    sums = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
    sums |= {name: handoff.sha256_of(folder / name) for name in names}
    (folder / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))


def test_verify_passes_where_there_is_nothing_but_numpy_and_onnxruntime(folder: Path):
    moved = shutil.move(folder, folder.parent / "elsewhere")
    done = verify(moved)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "All is well."
    assert len(lines) == 9 + 2 + 1
    assert "ok      model.packed.onnx is the file that was handed over" in lines
    assert sum("outputs differ from the example's by" in line and "0.001 is allowed" in line for line in lines) == 2


@pytest.mark.parametrize("name", ["model.packed.onnx", "report.json", "example.npz", "preprocess.py", "HANDOFF.md"])
def test_verify_tells_a_file_that_was_changed(folder: Path, name: str):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    done = verify(folder)
    assert done.returncode == 1
    assert f"FAILED  {name} is not the file that was handed over: its hash is another" in done.stdout
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


def test_verify_says_what_it_needs(folder: Path):
    done = bare(folder.parent, ("numpy",), folder / "verify.py")
    assert done.returncode == 1
    assert "pip install numpy onnxruntime" in done.stderr


def test_the_example_is_the_same_each_time_and_prepare_makes_its_input(folder: Path, tmp_path: Path):
    report = finished(tmp_path / "run")
    again = handoff.run(report_of(report), tmp_path / "run", tmp_path / "again")
    assert (again / "example.npz").read_bytes() == (folder / "example.npz").read_bytes()
    example = np.load(folder / "example.npz")
    keys = {"samples", "input", "tolerance", "model.sparse.onnx/0", "model.packed.onnx/0"}
    assert set(example.files) == keys
    script = put(
        tmp_path / "check.py",
        b"import sys, numpy as np, preprocess\n"
        b"example = np.load(sys.argv[1])\n"
        b"assert preprocess.prepare(example['samples']).tobytes() == example['input'].tobytes()\n",
    )
    shutil.copy(folder / "preprocess.py", tmp_path)
    done = bare(tmp_path, ("numpy", "PIL"), script, folder / "example.npz")
    assert done.returncode == 0, done.stderr


def test_preparing_the_example_leaves_its_samples_as_they_are_stored(tmp_path: Path):
    finished(tmp_path)
    floats = {"stored": {"type": "float32", "shape": [3, 32, 32], "range": [0, 1]}, "image": None}
    kept = recipe.of_report({"recipe": RECIPE | floats | {"channels_to_front": False, "resize": None}})
    fed = Tensor(name="image", type="FLOAT", shape=("batch", 3, 32, 32))
    example = np.load(io.BytesIO(handoff_example.make(kept, fed, [tmp_path / "model.packed.onnx"], None).content))
    assert np.array_equal(example["samples"], kept.generate(4, handoff_example.SEED))
    assert not np.array_equal(example["samples"], example["input"])


def test_real_samples_are_handed_off_only_when_given_and_the_page_says_so(tmp_path: Path):
    report = finished(tmp_path / "run")
    samples = np.random.default_rng(5).integers(0, 256, (3, 32, 32, 3), np.uint8)
    out = handoff.run(report_of(report), tmp_path / "run", tmp_path / "out", samples)
    assert np.array_equal(np.load(out / "example.npz")["samples"], samples)
    assert "**Its samples are real data**: the first 3 of the test split." in (out / "HANDOFF.md").read_text()
    assert verify(out).returncode == 0


def test_a_model_of_fixed_batch_gets_an_example_of_that_size(tmp_path: Path):
    kept = recipe.of_report({"recipe": RECIPE})
    finished(tmp_path)
    fixed = Tensor(name="image", type="FLOAT", shape=(6, 3, 32, 32))
    for real in (None, np.zeros((4, 32, 32, 3), np.uint8), np.zeros((9, 32, 32, 3), np.uint8)):
        made = handoff_example.make(kept, fixed, [tmp_path / "model.packed.onnx"], real)
        assert np.load(io.BytesIO(made.content))["input"].shape == (6, 3, 32, 32)
        assert made.real == (0 if real is None else min(6, len(real)))


@pytest.mark.parametrize(("name", "limit"), [("fc.weight", 2e-2), ("ltp/0.values", 1e-3)])
def test_half_precision_has_a_wider_tolerance_unless_values_are_only_stored_so(tmp_path: Path, name: str, limit: float):
    changed = classifier()
    changed.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(3, np.float16), name + ".half"))
    onnx.save(changed, tmp_path / "model.onnx")
    fed = Tensor(name="image", type="FLOAT", shape=("batch", 3, 32, 32))
    made = handoff_example.make(recipe.of_report({"recipe": RECIPE}), fed, [tmp_path / "model.onnx"], None)
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


def test_a_large_example_has_one_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    finished(tmp_path)
    monkeypatch.setattr(handoff_example, "MOST_BYTES", 4 * 3 * 32 * 32 * 4)
    made = handoff_example.make(
        recipe.of_report({"recipe": RECIPE}),
        Tensor(name="image", type="FLOAT", shape=("batch", 3, 32, 32)),
        [tmp_path / "model.packed.onnx"],
        None,
    )
    assert np.load(io.BytesIO(made.content))["input"].shape == (1, 3, 32, 32)
