"""preprocess.py of a handoff, run where nothing of this program can be imported."""

import gzip
import io
import re
import runpy
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ltp_pipeline.data.columns import get_offsets_name
from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.data.generated import describe_inputs
from ltp_pipeline.data.images import decode
from ltp_pipeline.data.images.collection import ImageSamples
from ltp_pipeline.data.open import open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.results.schema_parts import ModelTensorInfo
from ltp_pipeline.settings.schema import DataSettings
from ltp_pipeline.stages import handoff
from ltp_pipeline.stages.handoff import preprocess
from ltp_pipeline.stages.handoff.example import ModelInputs, read_inputs
from tests.support.archives import make_sequences
from tests.support.bare import run_bare
from tests.support.finished import RECIPE, inputs_of, write_run
from tests.support.photos import RGB, make_jpeg, open_photos, write_file
from tests.support.sample_report import report_of
from tests.support.samples import model, only_input

LABELS = np.arange(10) % 2


def write_script(folder: Path, inputs: ModelInputs) -> Path:
    """Write preprocess.py with its preprocess.json as a handoff does."""
    write_file(folder / "preprocess.json", handoff.format_preprocessing(inputs).encode())
    return write_file(folder / "preprocess.py", Path(preprocess.__file__).read_bytes())


def npz(path: Path, *shape: int, dtype: Any = np.uint8) -> Path:
    x = np.random.default_rng(0).integers(0, 200, (10, *shape)).astype(dtype)
    np.savez(path / "data.npz", x_train=x, y_train=LABELS, x_val=x, y_val=LABELS)
    return path / "data.npz"


def idx(path: Path, *_: int) -> Path:
    x = np.random.default_rng(0).integers(0, 256, (10, 8, 9), np.uint8)
    for name, array in (("images-idx3", x), ("labels-idx1", LABELS.astype(np.uint8))):
        head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        write_file(path / "idx" / f"train-{name}-ubyte.gz", gzip.compress(head + array.tobytes()))
    return path / "idx"


def photographs(path: Path, *_: int) -> Path:
    """Of several sizes and kinds: wide, tall, grey, with a palette, with an alpha channel."""
    for i in range(10):
        picture = Image.open(io.BytesIO(make_jpeg(i, 20 + 3 * i, 40 - 2 * i)))
        mode = ("RGB", "L", "P", "RGBA", "RGB")[i % 5]
        write_file(path / "photos" / "ab"[i % 2] / "x", b"").unlink()
        picture.convert(mode).save(
            path / "photos" / "ab"[i % 2] / f"{i}.{'jpg' if mode == 'RGB' else 'png'}"
        )
    return path / "photos"


COLOURS = {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
GREY = {"mean": (0.3,), "std": (0.4,)}
CASES: dict[str, tuple[Callable[..., Path], tuple[int, ...], Any, TensorInfo, dict[str, Any]]] = {
    "npz-nchw": (npz, (3, 4, 5), np.uint8, model(3, 4, 5), {"scale": 1 / 255, **COLOURS}),
    "npz-nhwc": (
        npz,
        (4, 5, 3),
        np.uint8,
        model(3, 4, 5),
        {"scale": 1 / 255, "layout": "NHWC", **COLOURS},
    ),
    "npz-float64-to-nhwc": (npz, (3, 8, 8), np.float64, model(8, 8, 3), COLOURS),
    "npz-resized": (npz, (3, 9, 7), np.uint8, model(3, 4, 5), {"resize": (4, 5), "scale": 0.1}),
    "npz-nhwc-resized-floats": (
        npz,
        (9, 7, 3),
        np.float32,
        model(3, 4, 5),
        {"resize": (4, 5), "layout": "NHWC"},
    ),
    "npz-grey-flattened": (npz, (4, 5), np.uint8, model(20), {"mean": (3,)}),
    "npz-colours-flattened": (npz, (4, 5, 3), np.uint8, model(60), {"layout": "NHWC", **COLOURS}),
    "npz-integers-resized": (
        npz,
        (3, 9, 7),
        np.int32,
        model(3, 4, 5, of="INT64"),
        {"resize": (4, 5)},
    ),
    "npz-features": (npz, (6,), np.float32, model(6), {"mean": tuple(range(6)), "std": (2,)}),
    "npz-half": (
        npz,
        (3, 4, 5),
        np.uint8,
        model(3, 4, 5, of="FLOAT16"),
        {"scale": 1 / 255, **COLOURS},
    ),
    "npz-bool": (npz, (3, 4), np.bool_, model(3, 4, of="BOOL"), {}),
    "idx": (idx, (), None, model(1, 8, 9), {"scale": 1 / 255, **GREY}),
    "idx-flattened": (idx, (), None, model(72), {"scale": 1 / 255, **GREY}),
    "images-squeezed": (photographs, (), None, RGB, {"scale": 1 / 255, **COLOURS}),
    "images-cropped": (photographs, (), None, RGB, {"crop": 0.875, "scale": 1 / 255, **COLOURS}),
    "images-cropped-oblong": (
        photographs,
        (),
        None,
        model(3, "H", "W"),
        {"resize": (7, 12), "crop": 0.7},
    ),
    "images-resized": (photographs, (), None, model(3, "H", "W"), {"resize": (9, 11)}),
    "images-grey": (photographs, (), None, model(1, 8, 8), {"scale": 1 / 255, **GREY}),
    "images-rgba": (photographs, (), None, model(4, 8, 8), {"crop": 0.9}),
}


def files_of(data: DatasetSplits) -> list[str]:
    """The image files of the test split, in its order."""
    images = data.test.inputs["image"].samples
    assert isinstance(images, ImageSamples)
    return [images.sources[row].file for row in data.test.rows]


@pytest.mark.parametrize("case", CASES)
def test_main_single_input_is_bit_identical_to_the_package(tmp_path: Path, case: str):
    make, shape, dtype, model_input, settings = CASES[case]
    data = open_photos(
        make(tmp_path, *shape, **({} if dtype is None else {"dtype": dtype})),
        model_input,
        **settings,
    )
    expected = only_input(data.test.read(np.arange(len(data.test))))
    inputs = inputs_of(describe_inputs(data)["image"], type=model_input.type)
    image_recipe, dtype_name = inputs.recipes["image"], inputs.name_dtype(inputs.tensors[0])
    script = write_script(tmp_path, inputs)
    pillow = image_recipe.image is not None or "resize" in settings
    stored = data.test.inputs["image"].samples.take(data.test.rows)
    np.save(tmp_path / "samples.npy", stored)
    files = files_of(data) if image_recipe.image else [tmp_path / "samples.npy"]
    process = run_bare(
        tmp_path, ("numpy", *["PIL"] * pillow), script, *files, tmp_path / "input.npy"
    )
    assert process.returncode == 0, process.stderr
    actual = np.load(tmp_path / "input.npy")
    expected = expected.astype(dtype_name)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    assert actual.tobytes() == expected.tobytes()
    assert actual.flags.c_contiguous
    assert image_recipe.stored is not None
    assert image_recipe.stored.range is not None
    low, high = image_recipe.stored.range
    assert low <= stored.min() <= stored.max() <= high


def test_main_samples_of_another_type_or_shape_raises(tmp_path: Path):
    data = open_photos(npz(tmp_path, 3, 4, 5), model(3, 4, 5), scale=1 / 255)
    script = write_script(tmp_path, inputs_of(describe_inputs(data)["image"]))
    for wrong in (np.zeros((3, 4, 5)), np.zeros((2, 4, 5, 3), np.uint8)):
        np.save(tmp_path / "samples.npy", wrong)
        process = run_bare(
            tmp_path, ("numpy",), script, tmp_path / "samples.npy", tmp_path / "input.npy"
        )
        assert process.returncode == 1
        assert re.search(r"\buint8\b.*\(3, 4, 5\)", process.stderr)
    np.save(tmp_path / "samples.npy", np.zeros((3, 4, 5), np.uint8))
    assert (
        run_bare(
            tmp_path, ("numpy",), script, tmp_path / "samples.npy", tmp_path / "one.npy"
        ).returncode
        == 0
    )
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
def test_read_inputs_impossible_preprocessing_raises(tmp_path: Path, change: dict[str, Any]):
    report = write_run(tmp_path / "run")
    report["data"]["inputs"]["image"]["preprocessing"] = RECIPE | change
    with pytest.raises((InputError, ValueError)):
        read_inputs(report_of(report))


def test_run_report_without_preprocessing_raises_and_writes_nothing(tmp_path: Path):
    report = write_run(tmp_path / "run")
    del report["data"]["inputs"]["image"]["preprocessing"]
    with pytest.raises(InputError, match=r"\breport\b.*\bsamples\b"):
        handoff.run(report_of(report), tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


HOSTILE = 'a\'"""\\\n); raise SystemExit(9) #'
PAIR = [TensorInfo("file", "FLOAT", ("N", 3, 4, 5)), TensorInfo(HOSTILE, "INT64", ("N", 3))]
TOKENS = [TensorInfo("ids", "INT64", ("N", "T")), TensorInfo("ids_mask", "FLOAT16", ("N", "T"))]
FRAMES = [TensorInfo("frames", "FLOAT", ("N", 8, 2))]


def pair() -> dict[str, np.ndarray]:
    """Images and tokens of each split."""
    rng, arrays = np.random.default_rng(0), {}
    for split in ("train", "val", "test"):
        arrays[f"file_{split}"] = rng.integers(0, 200, (6, 4, 5, 3), np.uint8)
        arrays[f"{HOSTILE}_{split}"] = rng.integers(0, 90, (6, 3), np.int32)
    return arrays


def frames() -> dict[str, np.ndarray]:
    """Sequences of pairs of floats."""
    arrays = make_sequences("frames")
    values = {key: np.stack([a, -a / 3], axis=1).astype(np.float32) for key, a in arrays.items()}
    return {
        key: array if key.endswith("_offsets") else values[key] for key, array in arrays.items()
    }


SEVERAL: dict[str, tuple[list[TensorInfo], dict[str, np.ndarray], dict[str, Any]]] = {
    "image-and-tokens": (
        PAIR,
        pair(),
        {"inputs": {"file": {"layout": "NHWC", "scale": 1 / 255, "mean": 0.3}}},
    ),
    "sequences-and-mask": (TOKENS, make_sequences("ids"), {"padding_value": 7}),
    "sequences-and-mask-of-fixed-length": (
        [TensorInfo(t.name, t.type, ("N", 9)) for t in TOKENS],
        make_sequences("ids"),
        {"padding_value": 7},
    ),
    "sequences-beside-an-input-named-like-their-offsets": (
        [*TOKENS[:1], TensorInfo("ids_offsets", "INT64", ("N", "U"))],
        make_sequences("ids") | make_sequences("ids_offsets"),
        {},
    ),
    "one-number-a-sample": (
        [TensorInfo("age", "FLOAT", ("N", 1)), TensorInfo("size", "FLOAT", ("N", 1))],
        {
            f"{name}_{split}": np.arange(9)
            for name in ("age", "size")
            for split in ("train", "val", "test")
        },
        {"scale": 0.1, "mean": 0.3},
    ),
    "sequences-of-vectors-alone": (
        FRAMES,
        frames(),
        {"padding_value": 0.25, "scale": 3.0, "std": 7},
    ),
}


@pytest.mark.parametrize("case", SEVERAL)
def test_main_several_inputs_are_bit_identical_to_the_package(tmp_path: Path, case: str):
    tensors, arrays, settings = SEVERAL[case]
    np.savez(tmp_path / "data.npz", **arrays)
    data = open_data(
        DataSettings.model_validate({"path": tmp_path / "data.npz", **settings}), tensors, 0
    )
    recipes = describe_inputs(data)
    inputs = ModelInputs(
        [ModelTensorInfo(name=t.name, type=t.type, shape=t.shape) for t in tensors], recipes
    )
    script = write_script(tmp_path, inputs)
    names = {
        get_offsets_name(f"{t.name}_test", ()): get_offsets_name(t.name, recipes) for t in tensors
    }
    some = {
        names.get(key, key.replace("_test", "")): array
        for key, array in arrays.items()
        if "_test" in key
    }
    np.savez(tmp_path / "samples.npz", **{f"x/{key}": array for key, array in some.items()})
    renamed(tmp_path / "samples.npz", "x/")
    out = tmp_path / ("input.npy" if len(tensors) == 1 else "inputs.npz")
    process = run_bare(tmp_path, ("numpy",), script, tmp_path / "samples.npz", out)
    assert process.returncode == 0, process.stderr
    expected = data.test.read(np.arange(len(data.test))).inputs
    arrays = {tensors[0].name: np.load(out)} if len(tensors) == 1 else dict(np.load(out))
    assert arrays.keys() == expected.keys()
    for tensor in inputs.tensors:
        expected_array = expected[tensor.name].astype(inputs.name_dtype(tensor))
        assert arrays[tensor.name].dtype == expected_array.dtype
        assert arrays[tensor.name].shape == expected_array.shape
        assert arrays[tensor.name].tobytes() == expected_array.tobytes()


def renamed(path: Path, prefix: str) -> None:
    """Take what they begin with from the names in an archive: numpy itself writes no array that is called file."""
    with zipfile.ZipFile(path) as archive:
        members = {name.removeprefix(prefix): archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def prepare_of(
    tensors: list[TensorInfo], tmp_path: Path, **arrays: np.ndarray
) -> Callable[[Any], Any]:
    """The function of the script that is made for these data."""
    np.savez(tmp_path / "data.npz", **arrays)
    data = open_data(DataSettings(path=tmp_path / "data.npz"), tensors, 0)
    inputs = ModelInputs(
        [ModelTensorInfo(name=t.name, type=t.type, shape=t.shape) for t in tensors],
        describe_inputs(data),
    )
    script = write_script(tmp_path, inputs)
    return runpy.run_path(str(script))["prepare"]


def test_prepare_lists_are_padded(tmp_path: Path):
    alone = prepare_of(TOKENS[:1], tmp_path, **make_sequences("ids"))
    assert alone([[3, 4], np.array([5], np.uint8), []]).tolist() == [[3, 4], [5, 0], [0, 0]]
    assert alone([[]]).tolist() == [[0]]
    both = prepare_of(TOKENS, tmp_path, **make_sequences("ids"))({"ids": [[3, 4], [5]]})
    assert {name: x.tolist() for name, x in both.items()} == {
        "ids": [[3, 4], [5, 0]],
        "ids_mask": [[1, 1], [1, 0]],
    }


@pytest.mark.parametrize(
    ("unfit", "parts"),
    [
        ([np.array([3.5])], r"\bfloat64\b"),
        ([[[3], [4]]], r"\(2, 1\)"),
        ([3, 4], r" \(\)"),
        ([[3] * 10], r"\b10\b.*\b9\b"),
    ],
)
def test_prepare_unfit_sequences_raises(tmp_path: Path, unfit: Any, parts: str):
    prepare = prepare_of([TensorInfo("ids", "INT64", ("N", 9))], tmp_path, **make_sequences("ids"))
    with pytest.raises(ValueError, match=parts):
        prepare(unfit)


def test_decoders_are_those_of_the_package() -> None:
    assert preprocess.DECODERS == decode.DECODERS


def test_load_image_of_several_inputs_uses_the_named_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = {"mode": "RGB", "size": [4, 5], "crop": None}
    steps = {"b": {"image": form}, "a": {"image": {**form, "size": [2, 3]}}, "ids": {"image": None}}
    monkeypatch.setattr(preprocess, "read_inputs", lambda: steps)
    path = write_file(tmp_path / "photo.jpg", make_jpeg(0, 20, 30))
    assert preprocess.load_image(path, "a").shape == (2, 3, 3)
    assert preprocess.load_image(path).shape == (4, 5, 3)


@pytest.mark.parametrize("arguments", [(), ("input.npy",), ("a.npy", "b.npy", "input.npy")])
def test_main_with_wrong_arguments_prints_the_usage(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    script = write_script(tmp_path, inputs_of(RECIPE | {"image": None}))
    process = run_bare(tmp_path, ("numpy",), script, *arguments)
    assert process.returncode == 1
    assert "python preprocess.py SAMPLES.npy INPUT.npy" in process.stderr
