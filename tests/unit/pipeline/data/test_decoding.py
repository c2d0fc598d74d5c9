"""Data at the scale of ImageNet: crops, augmentation, broken images."""

import random
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ltp_pipeline.data import batches, decoding, images
from ltp_pipeline.data.augmentation import shifted, uniform
from ltp_pipeline.data.decoding import Form, Source, pixels, random_box
from ltp_pipeline.data.stand_ins import met_broken
from ltp_pipeline.errors import InputError
from ltp_pipeline.records import TensorInfo
from tests.support.photos import cut, everything, jpeg, opened, put, refusal
from tests.support.samples import only

# Crops


@pytest.mark.parametrize(("height", "width"), [(300, 400), (400, 300), (256, 256), (100, 333)])
def test_the_centre_crop_is_that_of_torchvision_but_for_rounding(tmp_path: Path, height: int, width: int) -> None:
    file = put(tmp_path / "x.jpg", jpeg(1, height, width))
    image = Image.open(file)
    short, long = sorted((height, width))
    other = int(256 * long / short)
    image = image.resize((256, other) if width == short else (other, 256), Image.Resampling.BILINEAR)
    left, top = round((image.width - 224) / 2), round((image.height - 224) / 2)
    expected = np.asarray(image.crop((left, top, left + 224, top + 224)), np.int16)
    found = np.frombuffer(pixels(Source(str(file)), Form("RGB", (224, 224), 0.875)), np.uint8).reshape(224, 224, 3)
    off = np.abs(found - expected)
    assert off.max() <= 1
    assert off.mean() < 0.05


def test_without_a_crop_the_whole_image_is_squeezed(tmp_path: Path) -> None:
    file = put(tmp_path / "x.jpg", jpeg(1))
    expected = Image.open(file).resize((8, 6), Image.Resampling.BILINEAR).tobytes()
    assert pixels(Source(str(file)), Form("RGB", (6, 8))) == expected


def test_an_image_too_narrow_for_a_crop_is_not_blown_up(tmp_path: Path) -> None:
    Image.new("L", (10_000_000, 1), 7).save(tmp_path / "x.png")
    found = pixels(Source(str(tmp_path / "x.png")), Form("L", (224, 224), 0.875))  # all of it would be 655 GB
    assert set(found) == {7}


def test_crop_serves_training_and_evaluation(photos: Path) -> None:
    squeezed, cropped = opened(photos), opened(photos, crop=0.5)
    assert "images are resized and cropped to 8×8 (height×width), the centre 0.5 of the shorter side" in cropped.notes
    for name in ("train", "val"):
        one, other = (only(getattr(d, name).read(np.arange(1))) for d in (squeezed, cropped))
        assert (one != other).any()


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
    reduced = np.frombuffer(pixels(Source(str(file)), Form("RGB", (32, 32)), "7/0"), np.uint8).reshape(32, 32, 3)
    exact = np.asarray(Image.open(file).resize((32, 32), Image.Resampling.BILINEAR, box=box))
    nearer = min(np.abs(reduced.astype(int) - other).mean() for other in (exact, exact[:, ::-1]))
    assert nearer < 1.5


def cropped(number: int, mode: str, folder: Path) -> tuple[Image.Image, tuple[int, int, int, int], bool, bytes]:
    """A picture, the box and the flip of a random crop of it, and the crop, 40×50 pixels."""
    rng = np.random.default_rng(number)
    width, height = (int(n) for n in rng.integers(20, 120, 2))
    picture = Image.fromarray(rng.integers(0, 256, (height, width, 4), np.uint8), "RGBA").convert(mode)
    picture.save(folder / "x.png")
    chance = random.Random(f"1/{number}")  # noqa: S311 - no secret
    box = random_box(width, height, chance)
    made = pixels(Source(str(folder / "x.png")), Form(mode, (50, 40)), f"1/{number}")
    return picture, box, chance.random() < 0.5, bytes(made)


@pytest.mark.parametrize(
    ("mode", "fast", "most"),
    [("L", True, 2**21), ("RGBA", True, 2**21), ("RGB", False, 2**21), ("RGB", True, 10)],
    ids=["grey", "alpha", "no kernel", "large crops"],
)
def test_pillow_resizes_a_random_crop_where_it_lies(
    tmp_path: Path, mode: str, fast: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_has_fast_resize", lambda: fast)
    monkeypatch.setattr(decoding, "MAX_COPIED", most)
    for number in range(20):
        picture, box, flip, made = cropped(number, mode, tmp_path)
        wanted = picture.resize((40, 50), Image.Resampling.BILINEAR, box=box)
        assert made == (wanted.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else wanted).tobytes()


def test_torch_cuts_a_random_crop_out_and_resizes_it_as_pillow_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_has_fast_resize", lambda: True)
    for number in range(40):
        picture, box, flip, made = cropped(number, "RGB", tmp_path)
        wanted = picture.crop(box).resize((40, 50), Image.Resampling.BILINEAR)
        if flip:
            wanted = wanted.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        levels = np.frombuffer(made, np.uint8).astype(int) - np.frombuffer(wanted.tobytes(), np.uint8)
        assert np.abs(levels).max() <= 1


@pytest.mark.skipif(
    not torch.backends.cpu.get_cpu_capability().startswith("AVX"), reason="no AVX: Pillow is faster here"
)
def test_torch_is_asked_where_it_is_fast() -> None:
    assert decoding._has_fast_resize()


def test_memory_that_runs_out_in_torch_is_no_fault_of_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> memoryview:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(decoding, "_has_fast_resize", lambda: True)
    monkeypatch.setattr(decoding, "_fast_resize", fails)
    with pytest.raises(decoding.BrokenImageError) as caught:
        cropped(0, "RGB", tmp_path)
    assert (caught.value.problem.what, caught.value.problem.passable) == ("does not fit in memory", False)


def test_without_torch_pillow_makes_the_crop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding.platform, "machine", lambda: "x86_64")
    monkeypatch.setitem(sys.modules, "torch", None)  # as if its import failed
    assert not decoding._has_fast_resize.__wrapped__()


def test_other_processors_are_spared_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding.platform, "machine", lambda: "arm64")
    assert not decoding._has_fast_resize.__wrapped__()


def test_every_size_can_be_cropped(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(60):
        height, width = (int(n) for n in rng.integers(1, 400, 2))
        file = put(tmp_path / "x.jpg", jpeg(i, height, width))
        for seed in "abc":
            assert len(pixels(Source(str(file)), Form("RGB", (7, 9)), seed)) == 7 * 9 * 3
        assert len(pixels(Source(str(file)), Form("L", (7, 9), 0.9))) == 7 * 9


# Augmentation


@pytest.mark.parametrize("kept", [False, True])
def test_augmentation_is_a_function_of_seed_and_sample(
    photos: Path, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "KEEP_BYTES", 2**28 if kept else 0)
    data = opened(photos, augment=True)
    first = everything(data, 1)
    np.testing.assert_array_equal(everything(data, 1), first)
    assert (everything(data, 2) != first).any()
    assert (everything(data) != first).any()
    order = np.array([7, 3, 11])  # as after an interruption: other batches, same samples
    (later,) = map(only, batches(data.train, 3, order, augment_seed=1))
    np.testing.assert_array_equal(later, first[order])


def test_only_a_training_split_that_asks_for_it_is_augmented(photos: Path) -> None:
    data = opened(photos, augment=True)
    np.testing.assert_array_equal(only(data.val.read(np.arange(1), 1)), only(data.val.read(np.arange(1))))
    plain = opened(photos)
    np.testing.assert_array_equal(everything(plain, 1), everything(plain))


def test_draws_are_those_of_splitmix64() -> None:
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]  # its first with state 0
    np.testing.assert_array_equal(uniform(0, np.array([0, 1]), 2).ravel(), [(z >> 11) / 2**53 for z in known])


def test_draws_of_a_row_do_not_depend_on_the_others_and_differ_by_seed() -> None:
    rows = np.array([4, 9, 2])
    np.testing.assert_array_equal(uniform(5, rows, 3)[1:], uniform(5, rows[1:], 3))
    assert not np.isin(uniform(6, rows, 3), uniform(5, rows, 3)).any()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_arrays_are_shifted_and_mirrored(tmp_path: Path, layout: str) -> None:
    x = np.random.default_rng(0).integers(1, 256, (40, 3, 8, 8), dtype=np.uint8)
    stored = x if layout == "NCHW" else x.transpose(0, 2, 3, 1)
    np.savez(tmp_path / "d.npz", x_train=stored, y_train=np.arange(40) % 2, x_val=stored[:2], y_val=[0, 1])
    data = opened(tmp_path / "d.npz", augment=True, layout=layout)
    got = only(data.train.read(np.arange(40), 5)).astype(np.uint8)
    np.testing.assert_array_equal(got, shifted(x, np.arange(40), 5, 2))
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    seen = set()
    for i in range(40):
        ways = {
            (top, left, flip): padded[i, :, top : top + 8, left : left + 8][:, :, :: -1 if flip else 1]
            for top in range(3)
            for left in range(3)
            for flip in (False, True)
        }
        (way,) = [key for key, value in ways.items() if np.array_equal(value, got[i])]
        seen.add(way)
    assert len(seen) > 8
    np.testing.assert_array_equal(shifted(x[[7, 3]], np.array([7, 3]), 5, 2), got[[7, 3]])


def test_rows_of_numbers_are_not_augmented(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((9, 4), np.float32), y=np.arange(9) % 2)
    with pytest.raises(InputError, match="are no images"):
        opened(tmp_path / "d.npz", TensorInfo("row", "FLOAT", ("N", 4)), augment=True)


def test_a_crop_of_arrays_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((9, 3, 8, 8), np.float32), y=np.arange(9) % 2)
    assert "images in folders and shards" in refusal(tmp_path / "d.npz", crop=0.5).what


# Broken images


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.usefixtures("large")
def test_a_broken_image_met_in_training_is_named_once_and_another_of_its_class_stands_in(
    photos: Path, workers: int
) -> None:
    file = photos / "a" / "04.jpg"
    cut(file)
    data = opened(photos, workers=workers, validation_share=0.1)
    rows = data.train.rows
    (split,) = {s for s in (data.train, data.val, data.test) if 2 in s.rows}
    place = int(np.flatnonzero(split.rows == 2)[0])
    assert split is data.train
    with pytest.warns(UserWarning, match=r"04\.jpg cannot be decoded: .*another stands in for it"):
        x, *_ = map(only, batches(split, len(split)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = only(split.read(np.array([place])))
    labels = data.train.labels
    assert len(met_broken(data)) == 1
    following = next(p for p in range(len(rows)) if rows[p] > 2 and labels[p] == labels[place])
    np.testing.assert_array_equal(x[place], x[following])
    np.testing.assert_array_equal(again[0], x[following])


@pytest.mark.usefixtures("large")
def test_which_image_stands_in_does_not_depend_on_what_was_read_first(photos: Path) -> None:
    for name in ("04", "06"):
        file = photos / "a" / f"{name}.jpg"
        cut(file)
    found = []
    for order in ([2, 3], [3, 2]):
        data = opened(photos)
        assert {2, 3} <= set(data.train.rows)
        with pytest.warns(UserWarning, match="another stands in for it"):
            got = {row: only(data.train.read(np.flatnonzero(data.train.rows == row))) for row in order}
        found.append(np.stack([got[2], got[3]]))
    np.testing.assert_array_equal(found[0], found[1])


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
    assert "6 of 26 images cannot be used, 2 may be passed over" in error.what
    assert "bad0.jpg" in error.what
    assert error.remedy == "repair or remove them"  # raising max_broken would not help: a tenth is the most


@pytest.mark.usefixtures("large")
def test_raising_the_limit_is_offered_where_it_helps(photos: Path) -> None:
    for i in range(2):
        put(photos / "a" / f"bad{i}.jpg", b"")
    assert refusal(photos, max_broken=1).remedy == "repair or remove them, or raise max_broken in [data]"


@pytest.mark.usefixtures("large")
def test_an_image_that_has_gone_is_an_error_and_not_passed_over(photos: Path) -> None:
    data = opened(photos)
    for file in (photos / "a").iterdir():
        file.unlink()
    with pytest.raises(InputError, match=r"\.jpg cannot be read: No such file"):
        everything(data)


@pytest.mark.usefixtures("large")
def test_the_limit_holds_in_training(photos: Path) -> None:
    for file in list(photos.rglob("*.jpg"))[:15]:
        cut(file)
    data = opened(photos)
    with (
        warnings.catch_warnings(action="ignore"),
        pytest.raises(InputError, match="of 20 images cannot be used, 2 may be"),
    ):
        everything(data)


@pytest.mark.usefixtures("large")
def test_of_many_images_a_share_is_looked_at(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "LOOK_AT", 5)
    looked = []
    monkeypatch.setattr(images, "header", lambda source: looked.append(source) or decoding.header(source))
    opened(photos)
    assert len(looked) == 5
    put(photos / "b" / "other.jpg", jpeg(0, 31, 40))
    with pytest.raises(InputError, match="differ in size"):  # where the images decide the size, all are looked at
        opened(photos, TensorInfo("image", "FLOAT", ("N", 3, "H", "W")))


# Images without labels


def test_a_flat_folder_has_no_labels(photos: Path) -> None:
    data = opened(photos / "a", validation_share=0.2)
    assert (data.train.labels, data.classes, data.class_names) == (None, None, None)
    assert len(data.train) == 6
    assert all(not batch.targets for batch in batches(data.train, 2))


def test_split_folders_may_be_flat(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    (photos / "a").rename(tmp_path / "bare" / "train")
    (photos / "b").rename(tmp_path / "bare" / "val")
    data = opened(tmp_path / "bare")
    assert data.train.labels is None
    assert (len(data.train), len(data.val)) == (10, 10)
