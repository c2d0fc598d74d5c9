"""Data at the scale of ImageNet: crops, augmentation, broken images."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ltp_pipeline.data.images import decode
from ltp_pipeline.data.images.decode import MAX_SIDE, Form, ImageSource, pixels, random_box
from tests.support.photos import jpeg, put, refusal

# Crops


@pytest.mark.parametrize(("height", "width"), [(300, 400), (400, 300), (256, 256), (100, 333)])
def test_the_centre_crop_is_that_of_torchvision_but_for_rounding(
    tmp_path: Path, height: int, width: int
) -> None:
    file = put(tmp_path / "x.jpg", jpeg(1, height, width))
    image = Image.open(file)
    short, long = sorted((height, width))
    other = int(256 * long / short)
    image = image.resize(
        (256, other) if width == short else (other, 256), Image.Resampling.BILINEAR
    )
    left, top = round((image.width - 224) / 2), round((image.height - 224) / 2)
    expected = np.asarray(image.crop((left, top, left + 224, top + 224)), np.int16)
    found = np.frombuffer(
        pixels(ImageSource(str(file)), Form("RGB", (224, 224), 0.875)), np.uint8
    ).reshape(224, 224, 3)
    off = np.abs(found - expected)
    assert off.max() <= 1
    assert off.mean() < 0.05


def test_without_a_crop_the_whole_image_is_squeezed(tmp_path: Path) -> None:
    file = put(tmp_path / "x.jpg", jpeg(1))
    expected = Image.open(file).resize((8, 6), Image.Resampling.BILINEAR).tobytes()
    assert pixels(ImageSource(str(file)), Form("RGB", (6, 8))) == expected


def test_an_image_too_narrow_for_a_crop_is_not_blown_up(tmp_path: Path) -> None:
    Image.new("L", (MAX_SIDE, 1), 7).save(tmp_path / "x.png")
    found = pixels(
        ImageSource(str(tmp_path / "x.png")), Form("L", (224, 224), 0.875)
    )  # all of it would be 4 GB
    assert set(found) == {7}


def test_random_boxes_lie_inside_and_have_the_usual_sizes() -> None:
    rng = random.Random(0)  # noqa: S311 - no secret
    areas = []
    for _ in range(2000):
        left, top, right, bottom = random_box(400, 300, rng)
        assert 0 <= left < right <= 400
        assert 0 <= top < bottom <= 300
        assert 0.7 < (right - left) / (bottom - top) < 1.4
        areas.append((right - left) * (bottom - top) / 120_000)
    assert 0.07 < min(areas) < 0.1
    assert max(areas) > 0.9
    assert random_box(1000, 1, rng)[1::2] == (0, 1)
    assert random_box(1, 1, rng) == (0, 0, 1, 1)


def test_a_large_photograph_is_decoded_reduced_for_a_random_crop(tmp_path: Path) -> None:
    file = put(tmp_path / "x.jpg", jpeg(3, 1200, 1600))
    box = random_box(1600, 1200, random.Random("7/0"))  # noqa: S311 - no secret
    reduced = np.frombuffer(
        pixels(ImageSource(str(file)), Form("RGB", (32, 32)), "7/0"), np.uint8
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
    box = random_box(width, height, chance)
    made = pixels(ImageSource(str(folder / "x.png")), Form(mode, (50, 40)), f"1/{number}")
    return picture, box, chance.random() < 0.5, bytes(made)


@pytest.mark.parametrize(
    ("mode", "fast", "most"),
    [("L", True, 2**21), ("RGBA", True, 2**21), ("RGB", False, 2**21), ("RGB", True, 10)],
    ids=["grey", "alpha", "no kernel", "large crops"],
)
def test_pillow_resizes_a_random_crop_where_it_lies(
    tmp_path: Path, mode: str, fast: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "_has_fast_resize", lambda: fast)
    monkeypatch.setattr(decode, "MAX_COPIED", most)
    for number in range(20):
        picture, box, flip, made = cropped(number, mode, tmp_path)
        wanted = picture.resize((40, 50), Image.Resampling.BILINEAR, box=box)
        assert (
            made
            == (wanted.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else wanted).tobytes()
        )


def test_torch_cuts_a_random_crop_out_and_resizes_it_as_pillow_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "_has_fast_resize", lambda: True)
    for number in range(40):
        picture, box, flip, made = cropped(number, "RGB", tmp_path)
        wanted = picture.crop(box).resize((40, 50), Image.Resampling.BILINEAR)
        if flip:
            wanted = wanted.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        levels = np.frombuffer(made, np.uint8).astype(int) - np.frombuffer(
            wanted.tobytes(), np.uint8
        )
        assert np.abs(levels).max() <= 1


@pytest.mark.skipif(
    not torch.backends.cpu.get_cpu_capability().startswith("AVX"),
    reason="no AVX: Pillow is faster here",
)
def test_torch_is_asked_where_it_is_fast() -> None:
    assert decode._has_fast_resize()


def test_memory_that_runs_out_in_torch_is_no_fault_of_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> memoryview:
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"
        )

    monkeypatch.setattr(decode, "_has_fast_resize", lambda: True)
    monkeypatch.setattr(decode, "_fast_resize", fails)
    with pytest.raises(decode.BrokenImageError) as caught:
        cropped(0, "RGB", tmp_path)
    assert (caught.value.problem.what, caught.value.problem.passable) == (
        "does not fit in memory",
        False,
    )


def test_without_torch_pillow_makes_the_crop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode.platform, "machine", lambda: "x86_64")
    monkeypatch.setitem(sys.modules, "torch", None)  # as if its import failed
    assert not decode._has_fast_resize.__wrapped__()


def test_other_processors_are_spared_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode.platform, "machine", lambda: "arm64")
    assert not decode._has_fast_resize.__wrapped__()


def test_every_size_can_be_cropped(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(60):
        height, width = (int(n) for n in rng.integers(1, 400, 2))
        file = put(tmp_path / "x.jpg", jpeg(i, height, width))
        for seed in "abc":
            assert len(pixels(ImageSource(str(file)), Form("RGB", (7, 9)), seed)) == 7 * 9 * 3
        assert len(pixels(ImageSource(str(file)), Form("L", (7, 9), 0.9))) == 7 * 9


# Augmentation


def test_a_crop_of_arrays_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((9, 3, 8, 8), np.float32), y=np.arange(9) % 2)
    assert "images in folders and shards" in refusal(tmp_path / "d.npz", crop=0.5).message


# Broken images


# Images without labels
