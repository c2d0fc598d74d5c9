"""Images of any source: size, colour, fingerprint, broken ones."""

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ltp_pipeline.data.images import collection, decode
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from tests.support.class_folders import ANY, open_folder, picture, refused_folder, save
from tests.support.photos import cut, everything, jpeg, opened, png_header, put, refusal
from tests.support.samples import only


def test_crop_serves_training_and_evaluation(photos: Path) -> None:
    squeezed, cropped = opened(photos), opened(photos, crop=0.5)
    assert (
        "images are resized and cropped to 8×8 (height×width), the centre 0.5 of the shorter side"
        in cropped.notes
    )
    for name in ("train", "val"):
        one, other = (only(getattr(d, name).read(np.arange(1))) for d in (squeezed, cropped))
        assert (one != other).any()


def test_broken_images_of_a_small_folder_are_left_out_and_told(photos: Path) -> None:
    cut(put(photos / "a" / "cut.jpg", jpeg(0)))
    put(photos / "b" / "text.jpg", b"no image")
    data = opened(photos)
    assert len(data.train) + len(data.val) + len(data.test) == 20
    assert sum("it is left out" in note for note in data.notes) == 2
    assert any("cut.jpg cannot be decoded" in note for note in data.notes)


@pytest.mark.usefixtures("large")
def test_more_broken_images_than_the_limit_are_an_error(photos: Path) -> None:
    for i in range(6):
        put(photos / "a" / f"bad{i}.jpg", b"")
    error = refusal(photos)
    assert "6 of 26 images cannot be used, 2 may be passed over" in error.message
    assert "bad0.jpg" in error.message
    assert (
        error.hint == "repair or remove them"
    )  # raising max_corrupt_images would not help: a tenth is the most


@pytest.mark.usefixtures("large")
def test_raising_the_limit_is_offered_where_it_helps(photos: Path) -> None:
    for i in range(2):
        put(photos / "a" / f"bad{i}.jpg", b"")
    assert (
        refusal(photos, max_corrupt_images=1).hint
        == "repair or remove them, or raise max_corrupt_images in [data]"
    )


@pytest.mark.usefixtures("large")
def test_an_image_that_has_gone_is_an_error_and_not_passed_over(photos: Path) -> None:
    data = opened(photos)
    for file in (photos / "a").iterdir():
        file.unlink()
    with pytest.raises(InputError, match=r"\.jpg cannot be read: No such file"):
        everything(data)


@pytest.mark.usefixtures("large")
def test_of_many_images_a_share_is_looked_at(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "LOOK_AT", 5)
    looked = []
    monkeypatch.setattr(
        collection,
        "header",
        lambda source, most: looked.append(source) or decode.header(source, most),
    )
    opened(photos)
    assert len(looked) == 5
    put(photos / "b" / "other.jpg", jpeg(0, 31, 40))
    with pytest.raises(
        InputError, match="differ in size"
    ):  # where the images decide the size, all are looked at
        opened(photos, TensorInfo("image", "FLOAT", ("N", 3, "H", "W")))


def test_the_way_from_file_to_input_is_told(folder: Path) -> None:
    grey = TensorInfo("image", "FLOAT", ("N", 1, 4, 5))
    assert open_folder(folder, grey).steps["image"] == (
        "decode the file to grey, the luma of Rec. 601, 0 to 255",
        "resize to 4 × 5 pixels, height × width, bilinear, whatever its shape",
        "bring the channels from the last axis to the front",
    )
    assert open_folder(folder, crop=0.5).steps["image"][1:3] == (
        "resize, as it is shaped, until it just covers 12 × 16 pixels, height × width, bilinear",
        "cut 6 × 8 out of the middle",
    )


def test_images_take_the_size_the_model_fixes(folder: Path) -> None:
    data = open_folder(folder, TensorInfo("image", "FLOAT", ("N", 3, 4, 5)))
    assert only(data.train.read(np.arange(2))).shape == (2, 3, 4, 5)
    assert "images are resized to 4×5 (height×width)" in data.notes


def test_resize_serves_where_the_model_takes_any_size(folder: Path) -> None:
    save(folder / "cat" / "large.png", picture(3, 20, 30, 3))
    batch = only(open_folder(folder, ANY, resize=(6, 8)).train.read(np.arange(8)))
    assert batch.shape == (8, 3, 6, 8)


def test_images_of_one_size_need_no_resize(folder: Path) -> None:
    assert only(open_folder(folder, ANY).train.read(np.arange(2))).shape == (2, 3, 6, 8)


def test_images_that_differ_in_size_are_named_with_the_remedy(folder: Path) -> None:
    save(folder / "dog" / "large.png", picture(3, 20, 30, 3))
    error = refused_folder(folder, ANY)
    assert "20×30" in error.message
    assert "large.png" in error.message
    assert "resize" in error.hint


def test_a_resize_the_model_cannot_take_is_refused(folder: Path) -> None:
    assert "10×10; the model takes 6×8" in refused_folder(folder, resize=(10, 10)).message


def test_colour_becomes_grey_for_a_model_of_one_channel(folder: Path) -> None:
    batch = only(
        open_folder(folder, TensorInfo("image", "FLOAT", ("N", 1, 6, 8))).train.read(np.arange(1))
    )
    assert batch.shape == (1, 1, 6, 8)


def test_grey_becomes_colour_for_a_model_of_three(folder: Path) -> None:
    save(folder / "dog" / "grey.png", picture(3, 6, 8))
    assert only(open_folder(folder).train.read(np.arange(9))).shape == (9, 3, 6, 8)


def test_grey_images_stay_grey_where_the_model_does_not_say(tmp_path: Path) -> None:
    for name in "abcd":
        save(tmp_path / name / "0.png", picture(ord(name), 6, 8))
    assert only(
        open_folder(tmp_path, TensorInfo("row", "FLOAT", ("N", 48))).train.read(np.arange(2))
    ).shape == (2, 48)


def test_a_model_that_takes_nhwc_gets_images_so(folder: Path) -> None:
    data = open_folder(folder, TensorInfo("image", "FLOAT", ("N", 6, 8, 3)))
    assert only(data.train.read(np.arange(2))).shape == (2, 6, 8, 3)


def test_a_model_of_two_channels_cannot_take_images(folder: Path) -> None:
    assert (
        "2 channels" in refused_folder(folder, TensorInfo("image", "FLOAT", ("N", 2, 6, 8))).message
    )


@pytest.mark.parametrize("much", [False, True])
def test_the_fingerprint_follows_names_and_contents(
    folder: Path, much: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "HASHED_BYTES", 0 if much else 2**28)
    first = open_folder(folder).fingerprint
    assert open_folder(folder).fingerprint == first
    save(folder / "cat" / "0.png", picture(99))
    second = open_folder(folder).fingerprint
    assert second != first
    (folder / "cat" / "0.png").rename(folder / "cat" / "00.png")
    assert open_folder(folder).fingerprint != second


@pytest.mark.parametrize("much", [False, True])
def test_times_of_change_count_only_where_reading_all_would_take_long(
    folder: Path, much: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "HASHED_BYTES", 0 if much else 2**28)
    first = open_folder(folder).fingerprint
    os.utime(folder / "cat" / "0.png", (1, 1))
    assert (open_folder(folder).fingerprint == first) is not much


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    "content", [b"", b"not an image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"]
)
def test_a_file_that_is_no_image_is_named(folder: Path, content: bytes) -> None:
    (folder / "cat" / "bad.png").write_bytes(content)
    error = refused_folder(folder)
    assert "bad.png cannot be decoded" in error.message
    assert "repair or remove" in error.hint


def cut_short(folder: Path) -> Path:
    file = folder / "cat" / "0.png"
    save(file, picture(0, 60, 80, 3))
    file.write_bytes(file.read_bytes()[:2000])
    return file


def test_an_image_cut_short_is_named_before_training(folder: Path) -> None:
    file = cut_short(folder)
    assert str(file) in refused_folder(folder).message


def test_an_image_cut_short_in_a_large_folder_is_named_when_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "MAX_DECODED_BYTES", 0)
    file = cut_short(folder)
    data = open_folder(folder, max_corrupt_images=0)
    (split,) = {s for s in (data.train, data.val, data.test) if 0 in s.rows}
    with pytest.raises(InputError) as caught:
        only(split.read(np.arange(len(split))))
    assert str(file) in caught.value.message


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [9_000, 10_000, 50_000])
def test_a_decompression_bomb_is_named_and_not_decoded(folder: Path, side: int) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(99)))
        + chunk(b"IEND", b"")
    )
    (folder / "dog" / "bomb.png").write_bytes(png)
    error = refused_folder(folder)
    assert "bomb.png has" in error.message
    assert "pixels" in error.message


def test_an_image_of_sixteen_bits_is_refused(folder: Path) -> None:
    Image.fromarray(np.full((6, 8), 40_000, np.uint16)).save(folder / "cat" / "deep.png")
    assert "deep.png has more than 8 bits" in refused_folder(folder).message


@pytest.mark.parametrize("kind", ["gif", "png", "webp", "tiff"])
def test_of_an_image_with_several_frames_the_first_is_read_and_it_is_noted(
    tmp_path: Path, kind: str
) -> None:
    frames = [Image.new("RGB", (8, 6), colour) for colour in ("red", "lime", "blue")]
    for i in range(12):
        frames[0].save(
            tmp_path / f"{i}.{kind}",
            save_all=not i,
            append_images=[] if i else frames[1:],
            lossless=True,
        )
    data = opened(tmp_path)
    (note,) = [n for n in data.notes if "frame" in n]
    assert (
        note == f"of 1 image with several frames the first frame is read: {tmp_path / f'0.{kind}'}"
    )
    assert {tuple(pixel) for pixel in everything(data)[:, :, 0, 0].astype(int)} == {(255, 0, 0)}


@pytest.mark.parametrize(
    ("size", "said"),
    [((80_000_000, 1), "a side of 80000000 pixels"), ((9_000, 9_000), "81000000 pixels")],
)
def test_an_image_that_is_too_large_is_told_by_its_header(
    tmp_path: Path, size: tuple[int, int], said: str
) -> None:
    put(tmp_path / "x.png", png_header(*size))
    assert said in refusal(tmp_path).message


def test_the_most_pixels_are_a_setting(photos: Path) -> None:
    assert "1200 pixels, more than 1199" in refusal(photos, max_pixels=1199).message
    opened(photos, max_pixels=1200)


def test_a_file_that_is_too_long_for_an_image_is_not_read(tmp_path: Path) -> None:
    file = put(tmp_path / "x.webp", b"RIFF\0\0\0\0WEBPVP8 ")
    with file.open("r+b") as content:
        content.truncate(2**29)
    with pytest.raises(decode.BrokenImageError, match="has 536,870,912 bytes"):
        decode.header(decode.ImageSource(str(file)))
