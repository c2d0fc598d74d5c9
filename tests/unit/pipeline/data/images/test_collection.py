"""Images of all formats: size, color, hash, and corrupt images."""

import errno
import os
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ltp_pipeline.data.images import collection, decode
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from tests.support.class_folders import (
    ANY,
    get_folder_error,
    make_picture,
    open_folder,
    save_picture,
)
from tests.support.photos import (
    get_open_error,
    make_jpeg,
    open_photos,
    png_header,
    read_everything,
    truncate_file,
    write_file,
)
from tests.support.samples import only_input


def test_open_images_crop_applies_to_all_splits(photos: Path) -> None:
    squeezed, cropped = open_photos(photos), open_photos(photos, crop=0.5)
    assert any("8×8" in note and "0.5" in note for note in cropped.notes)
    for name in ("train", "val"):
        first, other = (
            only_input(getattr(d, name).read(np.arange(1))) for d in (squeezed, cropped)
        )
        assert (first != other).any()


def test_open_images_corrupt_images_of_a_small_set_are_left_out(photos: Path) -> None:
    truncate_file(write_file(photos / "a" / "cut.jpg", make_jpeg(0)))
    write_file(photos / "b" / "text.jpg", b"no image")
    data = open_photos(photos)
    assert len(data.train) + len(data.val) + len(data.test) == 20
    for name in ("cut.jpg", "text.jpg"):
        assert any(name in note for note in data.notes)


@pytest.mark.usefixtures("large")
def test_open_images_too_many_corrupt_images_raise(photos: Path) -> None:
    for i in range(6):
        write_file(photos / "a" / f"bad{i}.jpg", b"")
    error = get_open_error(photos)
    assert re.search(r"\b6\b.*\b26 images\b", error.message)
    assert "bad0.jpg" in error.message
    assert "max_corrupt_images" not in error.hint  # at most one image in ten may be corrupt


@pytest.mark.usefixtures("large")
def test_open_images_hint_names_the_limit_if_it_helps(photos: Path) -> None:
    for i in range(2):
        write_file(photos / "a" / f"bad{i}.jpg", b"")
    assert "max_corrupt_images" in get_open_error(photos, max_corrupt_images=1).hint


@pytest.mark.usefixtures("large")
def test_fetch_missing_image_raises_and_is_not_replaced(photos: Path) -> None:
    data = open_photos(photos)
    for file in (photos / "a").iterdir():
        file.unlink()
    with pytest.raises(InputError) as caught:
        read_everything(data)
    assert re.search(rf"/a/\d+\.jpg .*{os.strerror(errno.ENOENT)}", caught.value.message)


@pytest.mark.usefixtures("large")
def test_read_headers_of_many_images_some_are_read(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "MAX_INSPECTED_HEADERS", 5)
    sources = []

    def record_header(source: decode.ImageSource, max_pixels: int) -> decode.ImageHeader:
        sources.append(source)
        return decode.read_header(source, max_pixels)

    monkeypatch.setattr(collection, "read_header", record_header)
    open_photos(photos)
    assert len(sources) == 5
    write_file(photos / "b" / "other.jpg", make_jpeg(0, 31, 40))
    with pytest.raises(InputError) as caught:  # all headers are read if they give the size
        open_photos(photos, TensorInfo("image", "FLOAT", ("N", 3, "H", "W")))
    assert "other.jpg" in caught.value.message


def test_open_images_size_is_that_of_the_model(folder: Path) -> None:
    data = open_folder(folder, TensorInfo("image", "FLOAT", ("N", 3, 4, 5)))
    assert only_input(data.train.read(np.arange(2))).shape == (2, 3, 4, 5)
    assert any("4×5" in note for note in data.notes)


def test_open_images_resize_sets_the_size_for_any_size(folder: Path) -> None:
    save_picture(folder / "cat" / "large.png", make_picture(3, 20, 30, 3))
    batch = only_input(open_folder(folder, ANY, resize=(6, 8)).train.read(np.arange(8)))
    assert batch.shape == (8, 3, 6, 8)


def test_open_images_of_one_size_need_no_resize(folder: Path) -> None:
    assert only_input(open_folder(folder, ANY).train.read(np.arange(2))).shape == (2, 3, 6, 8)


def test_open_images_of_different_sizes_raise(folder: Path) -> None:
    save_picture(folder / "dog" / "large.png", make_picture(3, 20, 30, 3))
    error = get_folder_error(folder, ANY)
    assert "20×30" in error.message
    assert "large.png" in error.message
    assert "resize" in error.hint


def test_open_images_resize_that_the_model_cannot_take_raises(folder: Path) -> None:
    assert "6×8" in get_folder_error(folder, resize=(10, 10)).message


def test_open_images_color_becomes_grey_for_one_channel(folder: Path) -> None:
    batch = only_input(
        open_folder(folder, TensorInfo("image", "FLOAT", ("N", 1, 6, 8))).train.read(np.arange(1))
    )
    assert batch.shape == (1, 1, 6, 8)


def test_open_images_grey_becomes_color_for_three_channels(folder: Path) -> None:
    save_picture(folder / "dog" / "grey.png", make_picture(3, 6, 8))
    assert only_input(open_folder(folder).train.read(np.arange(9))).shape == (9, 3, 6, 8)


def test_open_images_grey_stays_grey_for_any_channels(tmp_path: Path) -> None:
    for name in "abcd":
        save_picture(tmp_path / name / "0.png", make_picture(ord(name), 6, 8))
    assert only_input(
        open_folder(tmp_path, TensorInfo("row", "FLOAT", ("N", 48))).train.read(np.arange(2))
    ).shape == (2, 48)


def test_open_images_channels_last_model_gets_channels_last(folder: Path) -> None:
    data = open_folder(folder, TensorInfo("image", "FLOAT", ("N", 6, 8, 3)))
    assert only_input(data.train.read(np.arange(2))).shape == (2, 6, 8, 3)


def test_open_images_model_of_two_channels_raises(folder: Path) -> None:
    assert (
        "2 channels"
        in get_folder_error(folder, TensorInfo("image", "FLOAT", ("N", 2, 6, 8))).message
    )


@pytest.mark.parametrize("much", [False, True])
def test_hash_files_follows_names_and_contents(
    folder: Path, much: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "MAX_HASHED_BYTES", 0 if much else 2**28)
    first = open_folder(folder).fingerprint
    assert open_folder(folder).fingerprint == first
    save_picture(folder / "cat" / "0.png", make_picture(99))
    second = open_folder(folder).fingerprint
    assert second != first
    (folder / "cat" / "0.png").rename(folder / "cat" / "00.png")
    assert open_folder(folder).fingerprint != second


@pytest.mark.parametrize("much", [False, True])
def test_hash_files_times_count_for_large_sets_only(
    folder: Path, much: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "MAX_HASHED_BYTES", 0 if much else 2**28)
    first = open_folder(folder).fingerprint
    os.utime(folder / "cat" / "0.png", (1, 1))
    assert (open_folder(folder).fingerprint == first) is not much


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    "content", [b"", b"not an image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"]
)
def test_open_images_file_that_is_no_image_is_named(folder: Path, content: bytes) -> None:
    (folder / "cat" / "bad.png").write_bytes(content)
    error = get_folder_error(folder)
    assert "/bad.png " in error.message


def cut_short(folder: Path) -> Path:
    file = folder / "cat" / "0.png"
    save_picture(file, make_picture(0, 60, 80, 3))
    file.write_bytes(file.read_bytes()[:2000])
    return file


def test_open_images_truncated_image_of_a_small_set_is_named(folder: Path) -> None:
    file = cut_short(folder)
    assert str(file) in get_folder_error(folder).message


def test_fetch_truncated_image_of_a_large_set_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "MAX_DECODED_BYTES", 0)
    file = cut_short(folder)
    data = open_folder(folder, max_corrupt_images=0)
    (split,) = {s for s in (data.train, data.val, data.test) if 0 in s.rows}
    with pytest.raises(InputError) as caught:
        only_input(split.read(np.arange(len(split))))
    assert str(file) in caught.value.message


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [9_000, 10_000, 50_000])
def test_open_images_decompression_bomb_is_named(folder: Path, side: int) -> None:
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
    error = get_folder_error(folder)
    assert "/bomb.png " in error.message
    assert "pixels" in error.message


def test_open_images_sixteen_bits_raise(folder: Path) -> None:
    Image.fromarray(np.full((6, 8), 40_000, np.uint16)).save(folder / "cat" / "deep.png")
    assert re.search(r"/deep\.png .*\b8 bits\b", get_folder_error(folder).message)


@pytest.mark.parametrize("kind", ["gif", "png", "webp", "tiff"])
def test_open_images_first_of_several_frames_is_read_and_noted(tmp_path: Path, kind: str) -> None:
    frames = [Image.new("RGB", (8, 6), color) for color in ("red", "lime", "blue")]
    for i in range(12):
        frames[0].save(
            tmp_path / f"{i}.{kind}",
            save_all=not i,
            append_images=[] if i else frames[1:],
            lossless=True,
        )
    data = open_photos(tmp_path)
    (note,) = [n for n in data.notes if "frame" in n]
    assert str(tmp_path / f"0.{kind}") in note
    assert {tuple(pixel) for pixel in read_everything(data)[:, :, 0, 0].astype(int)} == {
        (255, 0, 0)
    }


@pytest.mark.parametrize(
    ("size", "text"),
    [((80_000_000, 1), "a side of 80000000 pixels"), ((9_000, 9_000), "81000000 pixels")],
)
def test_open_images_too_large_image_is_named_by_its_header(
    tmp_path: Path, size: tuple[int, int], text: str
) -> None:
    write_file(tmp_path / "x.png", png_header(*size))
    assert text in get_open_error(tmp_path).message


def test_open_images_max_pixels_is_the_limit(photos: Path) -> None:
    assert "1199" in get_open_error(photos, max_pixels=1199).message
    open_photos(photos, max_pixels=1200)


def test_read_header_too_large_file_is_not_read(tmp_path: Path) -> None:
    file = write_file(tmp_path / "x.webp", b"RIFF\0\0\0\0WEBPVP8 ")
    with file.open("r+b") as content:
        content.truncate(2**29)
    with pytest.raises(decode.CorruptImageError) as caught:
        decode.read_header(decode.ImageSource(str(file)))
    assert "536,870,912 bytes" in caught.value.message


def test_image_sources_equal_the_list_they_are_made_of() -> None:
    sources = [
        decode.ImageSource("/a/b\udcff.jpg"),
        decode.ImageSource("/shard.tar", 512, 99, "größe/\udcfe.png"),
    ]
    assert list(collection.ImageSources(sources)) == sources
    assert len(collection.ImageSources([])) == 0
