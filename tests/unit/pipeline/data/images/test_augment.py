"""Random crops, shifts and flips depend on seed and sample only."""

from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.data.images import collection
from ltp_pipeline.data.images.augment import draw_uniform, shift_images
from ltp_pipeline.data.loader import iter_batches
from tests.support.photos import open_photos, read_everything
from tests.support.samples import only_input


@pytest.mark.parametrize("is_decoded", [False, True])
def test_iter_batches_augmentation_is_a_function_of_seed_and_sample(
    photos: Path, is_decoded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "MAX_DECODED_BYTES", 2**28 if is_decoded else 0)
    data = open_photos(photos, augment=True)
    first = read_everything(data, 1)
    np.testing.assert_array_equal(read_everything(data, 1), first)
    assert (read_everything(data, 2) != first).any()
    assert (read_everything(data) != first).any()
    order = np.array([7, 3, 11])  # as after an interruption: other batches, same samples
    (later,) = map(only_input, iter_batches(data.train, 3, order, augment_seed=1))
    np.testing.assert_array_equal(later, first[order])


def test_read_only_augmented_training_splits_are_augmented(photos: Path) -> None:
    data = open_photos(photos, augment=True)
    np.testing.assert_array_equal(
        only_input(data.val.read(np.arange(1), 1)), only_input(data.val.read(np.arange(1)))
    )
    plain = open_photos(photos)
    np.testing.assert_array_equal(read_everything(plain, 1), read_everything(plain))


def test_draw_uniform_numbers_are_those_of_splitmix64() -> None:
    reference = [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
        0xF88BB8A8724C81EC,
    ]  # its first with state 0
    np.testing.assert_array_equal(
        draw_uniform(0, np.array([0, 1]), 2).ravel(), [(z >> 11) / 2**53 for z in reference]
    )


def test_draw_uniform_numbers_depend_on_seed_and_row_only() -> None:
    rows = np.array([4, 9, 2])
    np.testing.assert_array_equal(draw_uniform(5, rows, 3)[1:], draw_uniform(5, rows[1:], 3))
    assert not np.isin(draw_uniform(6, rows, 3), draw_uniform(5, rows, 3)).any()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_shift_images_shifts_and_mirrors_arrays(tmp_path: Path, layout: str) -> None:
    x = np.random.default_rng(0).integers(1, 256, (40, 3, 8, 8), dtype=np.uint8)
    stored = x if layout == "NCHW" else x.transpose(0, 2, 3, 1)
    np.savez(
        tmp_path / "d.npz",
        x_train=stored,
        y_train=np.arange(40) % 2,
        x_val=stored[:2],
        y_val=[0, 1],
    )
    data = open_photos(tmp_path / "d.npz", augment=True, layout=layout)
    got = only_input(data.train.read(np.arange(40), 5)).astype(np.uint8)
    np.testing.assert_array_equal(got, shift_images(x, np.arange(40), 5, 2))
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    seen = set()
    for i in range(40):
        ways = {
            (top, left, flip): padded[i, :, top : top + 8, left : left + 8][
                :, :, :: -1 if flip else 1
            ]
            for top in range(3)
            for left in range(3)
            for flip in (False, True)
        }
        (way,) = [key for key, value in ways.items() if np.array_equal(value, got[i])]
        seen.add(way)
    assert len(seen) > 8
    np.testing.assert_array_equal(shift_images(x[[7, 3]], np.array([7, 3]), 5, 2), got[[7, 3]])


def test_shift_images_flips_only_if_it_may_not_shift() -> None:
    x = np.random.default_rng(0).integers(1, 256, (40, 16, 16), dtype=np.uint8)
    flipped = shift_images(x, np.arange(40), 5, 1, ("flip",))
    is_mirrored = (flipped == x[:, :, ::-1]).all((1, 2))
    assert 5 < is_mirrored.sum() < 35
    np.testing.assert_array_equal(flipped[~is_mirrored], x[~is_mirrored])


def test_shift_images_shifts_only_if_it_may_not_flip() -> None:
    x = np.broadcast_to(np.arange(1, 17, dtype=np.uint8), (40, 16, 16))
    shifted = shift_images(x, np.arange(40), 5, 1, ("shift",))
    assert (shifted == 0).any()
    middle = shifted[:, 8, 4:12].astype(int)
    assert (np.diff(middle, axis=1) == 1).all()
