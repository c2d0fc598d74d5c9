"""What the training split does with `augment`: crops of images as they are decoded, shifts of stored arrays."""

from collections.abc import Callable

import numpy as np

from ltp_pipeline.data.dataset import DataColumn, Layout, Samples
from ltp_pipeline.data.images.broken import StandIns
from ltp_pipeline.data.images.collection import ImageSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array

PAD = 8  # arrays are shifted by up to an eighth of their size


def check_crop(column: DataColumn, crop: float | None) -> None:
    """Refuse a crop of what is not decoded here."""
    if crop is not None and not isinstance(column.samples, ImageSamples):
        raise InputError(
            f"{column.origin}: crop is set, but it is for images in folders and shards",
            "remove crop, or set resize",
        )


def augmented(
    column: DataColumn, samples: Samples, layout: Layout
) -> Callable[[Array, int], Array]:
    """Say how rows of this column are read when they are augmented with a seed."""
    if isinstance(samples, StandIns):
        return samples.augmented
    if len(samples.shape) not in (2, 3):
        raise InputError(
            f"{column.origin}: augment is set, but samples of shape {samples.shape} are no images",
            "remove augment",
        )
    axis = 2 if len(samples.shape) == 3 and layout == "NCHW" else 1

    def read(rows: Array, seed: int) -> Array:
        return shifted(samples.take(rows), rows, seed, axis)

    return read


def shifted(x: Array, rows: Array, seed: int, axis: int) -> Array:
    """Shift each image at random within a border of zeros, and mirror every other; height and width from `axis` on."""
    height, width = x.shape[axis : axis + 2]
    draws = uniform(seed, rows, 3)
    down, right = ((2 * (n // PAD) + 1, n // PAD) for n in (height, width))
    tops = (draws[:, 0] * down[0]).astype(np.int64) - down[1]
    lefts = (draws[:, 1] * right[0]).astype(np.int64) - right[1]
    ys = np.arange(height) + tops[:, None]
    columns = np.where(draws[:, 2:] < 0.5, np.arange(width)[::-1], np.arange(width))
    xs = columns + lefts[:, None]
    inside = _within(ys, height)[:, :, None] & _within(xs, width)[:, None, :]
    moved = np.moveaxis(x, (axis, axis + 1), (1, 2))
    out = moved[
        np.arange(len(x))[:, None, None],
        ys.clip(0, height - 1)[:, :, None],
        xs.clip(0, width - 1)[:, None, :],
    ]
    out[~inside] = 0
    return np.moveaxis(out, (1, 2), (axis, axis + 1))


def uniform(seed: int, rows: Array, count: int) -> Array:
    """Draw `count` numbers from [0, 1) for each row, which depend on the seed and its own number alone.

    They are those of SplitMix64 (Steele, Lea, Flood 2014), from a state that the seed is mixed into.
    """
    places = rows.astype(np.uint64)[:, None] * np.uint64(count) + np.arange(
        1, count + 1, dtype=np.uint64
    )
    start = _mixed(np.array([seed], np.uint64))
    return (_mixed(start + places * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(11)) * 2.0**-53


def _mixed(z: Array) -> Array:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = z ^ (z >> np.uint64(31))
    return mixed


def _within(places: Array, size: int) -> Array:
    return (places >= 0) & (places < size)
