"""Folders of class folders with images, and what each bad one is told."""

import os
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ltp_pipeline.config import DataSettings
from ltp_pipeline.data import Data, images, open_data, takes_in
from ltp_pipeline.errors import InputError
from ltp_pipeline.records import TensorInfo
from tests.support.samples import only

RGB = TensorInfo("image", "FLOAT", ("N", 3, 6, 8))
ANY = TensorInfo("image", "FLOAT", ("N", 3, "H", "W"))


def picture(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape or (6, 8, 3), dtype=np.uint8)


def save(file: Path, pixels: np.ndarray) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for c, name in enumerate(("cat", "dog")):
        for i in range(5):
            save(tmp_path / "pets" / name / f"{i}.png", picture(10 * c + i))
    return tmp_path / "pets"


@pytest.fixture(params=[0, 2**28], ids=["decoded each time", "decoded once"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "KEEP_BYTES", request.param)


def opened(path: Path, model_input: TensorInfo = RGB, **settings: Any) -> Data:
    return open_data(DataSettings(path=path, **settings), model_input, 0)


def refusal(path: Path, model_input: TensorInfo = RGB, **settings: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        opened(path, model_input, **{"max_broken": 0, **settings})
    return caught.value


@pytest.mark.usefixtures("either_way")
def test_class_folders_are_numbered_by_name(folder: Path) -> None:
    data = opened(folder, scale=1 / 255, mean=(0.5, 0.4, 0.3))
    assert data.class_names == ("cat", "dog")
    assert data.classes == 2
    assert (len(data.train), len(data.val), len(data.test)) == (8, 1, 1)
    everything = {}
    for split in (data.train, data.val, data.test):
        everything.update(
            zip(
                split.rows.tolist(),
                zip(only(split.read(np.arange(len(split)))), split.labels, strict=True),
                strict=True,
            )
        )
    for row in range(10):
        c, i = divmod(row, 5)
        pixels = picture(10 * c + i).transpose(2, 0, 1).astype(np.float32)
        expected = pixels * np.float32(1 / 255) - np.float32([0.5, 0.4, 0.3]).reshape(3, 1, 1)
        np.testing.assert_array_equal(everything[row][0], expected)
        assert everything[row][1] == c


@pytest.mark.parametrize("val", ["val", "valid", "validation"])
def test_split_folders_above_the_classes_are_followed(folder: Path, tmp_path: Path, val: str) -> None:
    for name in ("train", val, "test"):
        (tmp_path / "data" / name).parent.mkdir(exist_ok=True)
        for c in ("cat", "dog"):
            for i, file in enumerate((folder / c).iterdir()):
                save(tmp_path / "data" / name / c / f"{i}.png", np.asarray(Image.open(file)))
    (tmp_path / "data" / "raw").mkdir()
    data = opened(tmp_path / "data")
    assert (len(data.train), len(data.val), len(data.test)) == (10, 10, 10)
    assert data.notes == ("folder raw stands beside train and is left out",)


def test_test_images_without_classes_are_left_out(folder: Path, tmp_path: Path) -> None:
    for name in ("train", "val"):
        shutil.copytree(folder, tmp_path / "imagenet" / name)
    save(tmp_path / "imagenet" / "test" / "0.png", picture(0))
    data = opened(tmp_path / "imagenet")
    assert (len(data.train), len(data.val), data.test.name) == (10, 10, "val")
    assert any("has no class folders, so no labels, and is left out" in note for note in data.notes)


def test_the_way_from_file_to_input_is_told(folder: Path) -> None:
    grey = TensorInfo("image", "FLOAT", ("N", 1, 4, 5))
    assert opened(folder, grey).steps == (
        "decode the file to grey, the luma of Rec. 601, 0 to 255",
        "resize to 4 × 5 pixels, height × width, bilinear, whatever its shape",
        "bring the channels from the last axis to the front",
    )
    assert opened(folder, crop=0.5).steps[1:3] == (
        "resize, as it is shaped, until it just covers 12 × 16 pixels, height × width, bilinear",
        "cut 6 × 8 out of the middle",
    )


def test_a_class_may_be_called_train(folder: Path) -> None:
    save(folder / "train" / "0.png", picture(0))
    save(folder / "train" / "1.png", picture(1))
    assert opened(folder).class_names == ("cat", "dog", "train")


def test_images_take_the_size_the_model_fixes(folder: Path) -> None:
    data = opened(folder, TensorInfo("image", "FLOAT", ("N", 3, 4, 5)))
    assert only(data.train.read(np.arange(2))).shape == (2, 3, 4, 5)
    assert "images are resized to 4×5 (height×width)" in data.notes


def test_resize_serves_where_the_model_takes_any_size(folder: Path) -> None:
    save(folder / "cat" / "large.png", picture(3, 20, 30, 3))
    batch = only(opened(folder, ANY, resize=(6, 8)).train.read(np.arange(8)))
    assert batch.shape == (8, 3, 6, 8)


def test_images_of_one_size_need_no_resize(folder: Path) -> None:
    assert only(opened(folder, ANY).train.read(np.arange(2))).shape == (2, 3, 6, 8)


def test_images_that_differ_in_size_are_named_with_the_remedy(folder: Path) -> None:
    save(folder / "dog" / "large.png", picture(3, 20, 30, 3))
    error = refusal(folder, ANY)
    assert "20×30" in error.what
    assert "large.png" in error.what
    assert "resize" in error.remedy


def test_a_resize_the_model_cannot_take_is_refused(folder: Path) -> None:
    assert "10×10; the model takes 6×8" in refusal(folder, resize=(10, 10)).what


def test_colour_becomes_grey_for_a_model_of_one_channel(folder: Path) -> None:
    batch = only(opened(folder, TensorInfo("image", "FLOAT", ("N", 1, 6, 8))).train.read(np.arange(1)))
    assert batch.shape == (1, 1, 6, 8)


def test_grey_becomes_colour_for_a_model_of_three(folder: Path) -> None:
    save(folder / "dog" / "grey.png", picture(3, 6, 8))
    assert only(opened(folder).train.read(np.arange(9))).shape == (9, 3, 6, 8)


def test_grey_images_stay_grey_where_the_model_does_not_say(tmp_path: Path) -> None:
    for name in "abcd":
        save(tmp_path / name / "0.png", picture(ord(name), 6, 8))
    assert only(opened(tmp_path, TensorInfo("row", "FLOAT", ("N", 48))).train.read(np.arange(2))).shape == (2, 48)


def test_a_model_that_takes_nhwc_gets_images_so(folder: Path) -> None:
    data = opened(folder, TensorInfo("image", "FLOAT", ("N", 6, 8, 3)))
    assert only(data.train.read(np.arange(2))).shape == (2, 6, 8, 3)


def test_a_model_of_two_channels_cannot_take_images(folder: Path) -> None:
    assert "2 channels" in refusal(folder, TensorInfo("image", "FLOAT", ("N", 2, 6, 8))).what


def test_every_usual_format_and_nested_folders_are_read(tmp_path: Path) -> None:
    for i, ending in enumerate(("png", "JPG", "jpeg", "bmp", "gif", "webp", "tif", "ppm")):
        save(tmp_path / "a" / f"x.{ending}", picture(i))
        save(tmp_path / "b" / "images" / f"x.{ending}", picture(i))
    (tmp_path / "a" / "notes.txt").write_text("no image")
    (tmp_path / "a" / ".hidden.png").write_bytes(b"no image")
    data = opened(tmp_path)
    assert len(data.train) + len(data.val) + len(data.test) == 16


@pytest.mark.parametrize("much", [False, True])
def test_the_fingerprint_follows_names_and_contents(folder: Path, much: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "HASHED_BYTES", 0 if much else 2**28)
    first = opened(folder).fingerprint
    assert opened(folder).fingerprint == first
    save(folder / "cat" / "0.png", picture(99))
    second = opened(folder).fingerprint
    assert second != first
    (folder / "cat" / "0.png").rename(folder / "cat" / "00.png")
    assert opened(folder).fingerprint != second


@pytest.mark.parametrize("much", [False, True])
def test_times_of_change_count_only_where_reading_all_would_take_long(
    folder: Path, much: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "HASHED_BYTES", 0 if much else 2**28)
    first = opened(folder).fingerprint
    os.utime(folder / "cat" / "0.png", (1, 1))
    assert (opened(folder).fingerprint == first) is not much


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("content", [b"", b"not an image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"])
def test_a_file_that_is_no_image_is_named(folder: Path, content: bytes) -> None:
    (folder / "cat" / "bad.png").write_bytes(content)
    error = refusal(folder)
    assert "bad.png cannot be decoded" in error.what
    assert "repair or remove" in error.remedy


def cut_short(folder: Path) -> Path:
    file = folder / "cat" / "0.png"
    save(file, picture(0, 60, 80, 3))
    file.write_bytes(file.read_bytes()[:2000])
    return file


def test_an_image_cut_short_is_named_before_training(folder: Path) -> None:
    file = cut_short(folder)
    assert str(file) in refusal(folder).what


def test_an_image_cut_short_in_a_large_folder_is_named_when_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "KEEP_BYTES", 0)
    file = cut_short(folder)
    data = opened(folder, max_broken=0)
    (split,) = {s for s in (data.train, data.val, data.test) if 0 in s.rows}
    with pytest.raises(InputError) as caught:
        only(split.read(np.arange(len(split))))
    assert str(file) in caught.value.what


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [9_000, 10_000, 50_000])
def test_a_decompression_bomb_is_named_and_not_decoded(folder: Path, side: int) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")
    (folder / "dog" / "bomb.png").write_bytes(png)
    error = refusal(folder)
    assert "bomb.png has" in error.what
    assert "pixels" in error.what


def test_an_image_of_sixteen_bits_is_refused(folder: Path) -> None:
    Image.fromarray(np.full((6, 8), 40_000, np.uint16)).save(folder / "cat" / "deep.png")
    assert "deep.png has more than 8 bits" in refusal(folder).what


def test_a_class_without_images_is_refused(folder: Path) -> None:
    (folder / "empty").mkdir()
    assert "empty has no images" in refusal(folder).what


def test_a_class_that_training_lacks_is_refused(tmp_path: Path) -> None:
    for where in ("train/a", "train/b", "val/a", "val/c"):
        save(tmp_path / where / "0.png", picture(0))
    assert "has class c" in refusal(tmp_path).what


def test_a_class_that_validation_lacks_keeps_the_numbers(tmp_path: Path) -> None:
    for where in ("train/a", "train/b", "train/c", "val/c", "test/b"):
        save(tmp_path / where / "0.png", picture(0))
    data = opened(tmp_path)
    assert (data.val.labels.tolist(), data.test.labels.tolist()) == ([2], [1])


def test_split_folders_without_train_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "val" / "a" / "0.png", picture(0))
    assert "no folder train" in refusal(tmp_path).what


def test_val_and_valid_together_are_refused(tmp_path: Path) -> None:
    for where in ("train/a", "val/a", "valid/a"):
        save(tmp_path / where / "0.png", picture(0))
    assert "both val and valid" in refusal(tmp_path).what


def test_images_of_one_class_only_are_refused(folder: Path) -> None:
    error = refusal(folder / "..")
    assert "one class, pets" in error.what
    assert "without labels" in error.remedy


def test_loose_images_beside_class_folders_are_refused(folder: Path) -> None:
    save(folder / "0.png", picture(0))
    assert "beside folders of images" in refusal(folder).what


def test_a_folder_train_of_images_alone_has_no_labels(tmp_path: Path) -> None:
    for i in range(8):
        save(tmp_path / "train" / f"{i}.png", picture(i))
    assert opened(tmp_path).classes is None


def test_a_split_without_classes_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "train" / "a" / "0.png", picture(0))
    save(tmp_path / "train" / "b" / "0.png", picture(0))
    save(tmp_path / "val" / "0.png", picture(0))
    assert "has no class folders" in refusal(tmp_path).what


def test_the_data_folder_may_be_a_link_but_a_class_may_not_lead_outside(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert opened(tmp_path / "link").classes == 2
    save(tmp_path / "elsewhere" / "0.png", picture(0))
    (folder / "outside").symlink_to(tmp_path / "elsewhere")
    assert "outside is a link to a place outside" in refusal(folder).what


def test_a_folder_made_among_classes_would_be_taken_for_one_but_not_beside_splits(folder: Path, tmp_path: Path) -> None:
    assert takes_in(folder, folder / "model-ltp")
    assert not takes_in(folder, tmp_path / "model-ltp")
    for name in ("train", "val"):
        save(tmp_path / "data" / name / "cat" / "0.png", picture(0))
    assert not takes_in(tmp_path / "data", tmp_path / "data" / "model-ltp")
    assert takes_in(tmp_path / "data", tmp_path / "data" / "train" / "model-ltp")


def test_a_folder_beside_idx_files_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"")
    assert not takes_in(tmp_path, tmp_path / "model-ltp")
