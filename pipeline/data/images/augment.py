"""Random shifts and flips of stored images, as functions of a seed and of the row of each image."""

from collections.abc import Collection
from typing import Literal

import numpy as np

from ltp_pipeline.system.arrays import Array

Move = Literal["flip", "shift"]
MOVES: tuple[Move, ...] = ("flip", "shift")
MAX_SHIFT = 8  # images are shifted by up to an eighth of their size


def shift_images(
    images: Array, rows: Array, seed: int, axis: int, moves: Collection[Move] = MOVES
) -> Array:
    """Shift each image at random, and mirror every second one on average.

    Args:
        images: Stored images; the first axis counts them.
        rows: Row of each image in the stored data.
        seed: Seed of the random numbers.
        axis: First of the two axes for height and width.
        moves: Whether images are mirrored (flip), shifted, or both.

    Returns:
        Images of the same shape; zeros fill what was not inside an image.
    """
    height, width = images.shape[axis : axis + 2]
    draws = draw_uniform(seed, rows, 3)
    max_down, max_right = height // MAX_SHIFT, width // MAX_SHIFT
    if "shift" not in moves:
        max_down = max_right = 0
    is_mirrored = (draws[:, 2:] < 0.5) & ("flip" in moves)
    tops = (draws[:, 0] * (2 * max_down + 1)).astype(np.int64) - max_down
    lefts = (draws[:, 1] * (2 * max_right + 1)).astype(np.int64) - max_right
    ys = np.arange(height) + tops[:, None]
    columns = np.where(is_mirrored, np.arange(width)[::-1], np.arange(width))
    xs = columns + lefts[:, None]
    is_inside = _is_within(ys, height)[:, :, None] & _is_within(xs, width)[:, None, :]
    pixels = np.moveaxis(images, (axis, axis + 1), (1, 2))
    shifted = pixels[
        np.arange(len(images))[:, None, None],
        ys.clip(0, height - 1)[:, :, None],
        xs.clip(0, width - 1)[:, None, :],
    ]
    shifted[~is_inside] = 0
    return np.moveaxis(shifted, (1, 2), (axis, axis + 1))


def draw_uniform(seed: int, rows: Array, count: int) -> Array:
    """Draw `count` numbers from [0, 1) for each row, which depend on the seed and the row alone.

    They are those of SplitMix64 (Steele, Lea, Flood 2014); the seed is mixed into the state.
    """
    first_places = rows.astype(np.uint64)[:, None] * np.uint64(count)
    places = first_places + np.arange(1, count + 1, dtype=np.uint64)
    start = _mix_bits(np.array([seed], np.uint64))
    bits = _mix_bits(start + places * np.uint64(0x9E3779B97F4A7C15))
    numbers: Array = (bits >> np.uint64(11)) * 2.0**-53
    return numbers


def _mix_bits(z: Array) -> Array:
    """Apply the output function of SplitMix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = z ^ (z >> np.uint64(31))
    return mixed


def _is_within(places: Array, size: int) -> Array:
    """Return a mask of the places that are inside an axis of this size."""
    return (places >= 0) & (places < size)
