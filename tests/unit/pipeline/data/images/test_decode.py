"""Images are decoded, cropped and resized as Pillow does it."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ltp_pipeline.data.images import decode
from ltp_pipeline.data.images.decode import MAX_SIDE, ImageSource, choose_random_box, decode_image
from ltp_pipeline.results.schema_parts import ImageForm
from tests.support.photos import make_jpeg, write_file


@pytest.mark.parametrize(("height", "width"), [(300, 400), (400, 300), (256, 256), (100, 333)])
def test_decode_image_center_crop_equals_that_of_torchvision(
    tmp_path: Path, height: int, width: int
) -> None:
    file = write_file(tmp_path / "x.jpg", make_jpeg(1, height, width))
    image = Image.open(file)
    short, long = sorted((height, width))
    other = int(256 * long / short)
    image = image.resize(
        (256, other) if width == short else (other, 256), Image.Resampling.BILINEAR
    )
    left, top = round((image.width - 224) / 2), round((image.height - 224) / 2)
    expected = np.asarray(image.crop((left, top, left + 224, top + 224)), np.int16)
    pixels = np.frombuffer(
        decode_image(ImageSource(str(file)), ImageForm(mode="RGB", size=(224, 224), crop=0.875)),
        np.uint8,
    ).reshape(224, 224, 3)
    off = np.abs(pixels - expected)
    assert off.max() <= 1
    assert off.mean() < 0.05


def test_decode_image_without_crop_resizes_the_full_image(tmp_path: Path) -> None:
    file = write_file(tmp_path / "x.jpg", make_jpeg(1))
    expected = Image.open(file).resize((8, 6), Image.Resampling.BILINEAR).tobytes()
    assert decode_image(ImageSource(str(file)), ImageForm(mode="RGB", size=(6, 8))) == expected


def test_decode_image_narrow_image_needs_little_memory(tmp_path: Path) -> None:
    Image.new("L", (MAX_SIDE, 1), 7).save(tmp_path / "x.png")
    pixels = decode_image(
        ImageSource(str(tmp_path / "x.png")), ImageForm(mode="L", size=(224, 224), crop=0.875)
    )  # all of it would be 4 GB
    assert set(pixels) == {7}


def test_choose_random_box_is_inside_and_of_usual_size() -> None:
    rng = random.Random(0)  # noqa: S311 - no secret
    areas = []
    for _ in range(2000):
        left, top, right, bottom = choose_random_box(400, 300, rng)
        assert 0 <= left < right <= 400
        assert 0 <= top < bottom <= 300
        assert 0.7 < (right - left) / (bottom - top) < 1.4
        areas.append((right - left) * (bottom - top) / 120_000)
    assert 0.07 < min(areas) < 0.1
    assert max(areas) > 0.9
    assert choose_random_box(1000, 1, rng)[1::2] == (0, 1)
    assert choose_random_box(1, 1, rng) == (0, 0, 1, 1)


def test_decode_image_random_crop_of_a_large_jpeg_is_decoded_reduced(tmp_path: Path) -> None:
    file = write_file(tmp_path / "x.jpg", make_jpeg(3, 1200, 1600))
    box = choose_random_box(1600, 1200, random.Random("7/0"))  # noqa: S311 - no secret
    reduced = np.frombuffer(
        decode_image(ImageSource(str(file)), ImageForm(mode="RGB", size=(32, 32)), seed="7/0"),
        np.uint8,
    ).reshape(32, 32, 3)
    exact = np.asarray(Image.open(file).resize((32, 32), Image.Resampling.BILINEAR, box=box))
    nearer = min(np.abs(reduced.astype(int) - other).mean() for other in (exact, exact[:, ::-1]))
    assert nearer < 1.5


def cropped(
    number: int, mode: str, folder: Path
) -> tuple[Image.Image, tuple[int, int, int, int], bool, bytes]:
    """A picture, the box and the flip of a random crop of it, and the crop, 40×50 pixels."""
    rng = np.random.default_rng(number)
    width, height = (int(n) for n in rng.integers(20, 120, 2))
    picture = Image.fromarray(rng.integers(0, 256, (height, width, 4), np.uint8), "RGBA").convert(
        mode
    )
    picture.save(folder / "x.png")
    chance = random.Random(f"1/{number}")  # noqa: S311 - no secret
    box = choose_random_box(width, height, chance)
    actual = decode_image(
        ImageSource(str(folder / "x.png")), ImageForm(mode=mode, size=(50, 40)), seed=f"1/{number}"
    )
    return picture, box, chance.random() < 0.5, bytes(actual)


@pytest.mark.parametrize(
    ("mode", "fast", "most"),
    [("L", True, 2**21), ("RGBA", True, 2**21), ("RGB", False, 2**21), ("RGB", True, 10)],
    ids=["grey", "alpha", "no kernel", "large crops"],
)
def test_decode_image_random_crop_without_torch_equals_pillow(
    tmp_path: Path, mode: str, fast: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "_has_fast_resize", lambda: fast)
    monkeypatch.setattr(decode, "MAX_COPIED_PIXELS", most)
    for number in range(20):
        picture, box, flip, actual = cropped(number, mode, tmp_path)
        expected = picture.resize((40, 50), Image.Resampling.BILINEAR, box=box)
        assert (
            actual
            == (expected.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else expected).tobytes()
        )


def test_decode_image_random_crop_with_torch_equals_pillow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "_has_fast_resize", lambda: True)
    for number in range(40):
        picture, box, flip, actual = cropped(number, "RGB", tmp_path)
        expected = picture.crop(box).resize((40, 50), Image.Resampling.BILINEAR)
        if flip:
            expected = expected.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        levels = np.frombuffer(actual, np.uint8).astype(int) - np.frombuffer(
            expected.tobytes(), np.uint8
        )
        assert np.abs(levels).max() <= 1


@pytest.mark.skipif(
    not torch.backends.cpu.get_cpu_capability().startswith("AVX"),
    reason="no AVX: Pillow is faster here",
)
def test_has_fast_resize_with_avx_is_true() -> None:
    assert decode._has_fast_resize()


def test_decode_image_memory_error_of_torch_is_not_replaceable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> memoryview:
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"
        )

    monkeypatch.setattr(decode, "_has_fast_resize", lambda: True)
    monkeypatch.setattr(decode, "_resize_with_torch", fails)
    with pytest.raises(decode.CorruptImageError) as caught:
        cropped(0, "RGB", tmp_path)
    assert not caught.value.is_replaceable
    assert "memory" in caught.value.message


def test_has_fast_resize_without_torch_is_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode.platform, "machine", lambda: "x86_64")
    monkeypatch.setitem(sys.modules, "torch", None)  # as if its import failed
    assert not decode._has_fast_resize.__wrapped__()


def test_has_fast_resize_other_processors_do_not_import_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decode.platform, "machine", lambda: "arm64")
    assert not decode._has_fast_resize.__wrapped__()


def test_decode_image_every_size_can_be_cropped(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(60):
        height, width = (int(n) for n in rng.integers(1, 400, 2))
        file = write_file(tmp_path / "x.jpg", make_jpeg(i, height, width))
        for seed in "abc":
            assert (
                len(
                    decode_image(
                        ImageSource(str(file)), ImageForm(mode="RGB", size=(7, 9)), seed=seed
                    )
                )
                == 7 * 9 * 3
            )
        assert (
            len(decode_image(ImageSource(str(file)), ImageForm(mode="L", size=(7, 9), crop=0.9)))
            == 7 * 9
        )
