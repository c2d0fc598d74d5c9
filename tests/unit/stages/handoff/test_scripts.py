"""preprocess.py, example.npz and verify.py of a handoff, run where nothing of this program can be imported."""

import gzip
import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ltp_pipeline.data import Data, recipe
from ltp_pipeline.errors import InputError
from ltp_pipeline.records import TensorInfo
from ltp_pipeline.stages import handoff
from ltp_pipeline.stages.handoff import scripts as handoff_scripts
from tests.support.bare import bare
from tests.support.finished import RECIPE, finished, inputs_of
from tests.support.photos import RGB, jpeg, opened, put
from tests.support.sample_report import report_of
from tests.support.samples import model, only

LABELS = np.arange(10) % 2


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
    images = data.test.inputs["image"].samples.images
    return [images._sources[row].file for row in data.test.rows]


@pytest.mark.parametrize("case", CASES)
def test_preprocess_gives_bit_for_bit_what_training_and_measuring_saw(tmp_path: Path, case: str):
    make, shape, dtype, model_input, settings = CASES[case]
    data = opened(make(tmp_path, *shape, **({} if dtype is None else {"dtype": dtype})), model_input, **settings)
    expected = only(data.test.read(np.arange(len(data.test))))
    inputs = inputs_of(json.loads(json.dumps(recipe.of_data(data)["image"].plain())), type=model_input.type)
    kept, kind = inputs.recipes["image"], inputs.type_of(inputs.tensors[0])
    script = put(tmp_path / "preprocess.py", handoff_scripts.preprocess(inputs).encode())
    pillow = "from PIL" in script.read_text()
    stored = data.test.inputs["image"].samples.take(data.test.rows)
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
    script = put(
        tmp_path / "preprocess.py", handoff_scripts.preprocess(inputs_of(recipe.of_data(data)["image"])).encode()
    )
    for wrong in (np.zeros((3, 4, 5)), np.zeros((2, 4, 5, 3), np.uint8)):
        np.save(tmp_path / "samples.npy", wrong)
        done = bare(tmp_path, ("numpy",), script, tmp_path / "samples.npy", tmp_path / "input.npy")
        assert done.returncode == 1
        assert "stored ones were uint8 of shape (3, 4, 5)" in done.stderr
    np.save(tmp_path / "samples.npy", np.zeros((3, 4, 5), np.uint8))
    assert bare(tmp_path, ("numpy",), script, tmp_path / "samples.npy", tmp_path / "one.npy").returncode == 0
    assert np.load(tmp_path / "one.npy").shape == (1, 3, 4, 5)


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
        inputs_of(RECIPE | change)


def test_a_report_without_a_recipe_is_refused_and_nothing_written(tmp_path: Path):
    report = finished(tmp_path / "run")
    del report["data"]["inputs"]["image"]["recipe"]
    with pytest.raises(InputError, match="how samples are stored"):
        handoff.run(report_of(report), tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()
