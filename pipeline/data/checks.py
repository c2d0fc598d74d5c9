"""What is checked of samples and labels before anything is trained."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from ltp_pipeline.data.dataset import ArraySamples, ClassNumbers, DataColumn, Samples
from ltp_pipeline.data.preprocessing import Preparation
from ltp_pipeline.data.sequences import RaggedSamples
from ltp_pipeline.errors import InputError, summarize_error
from ltp_pipeline.system.arrays import Array

CHUNK_BYTES = 16 * 2**20
NUMBER_KINDS = "biuf"  # the kinds of numpy types that samples have
LARGEST_CLASS = np.iinfo(np.int32).max
LARGEST_WHOLE = (
    2**53
)  # below which a double holds every whole number; beyond it, numbers are names and hashes
LARGEST_INTEGER = np.iinfo(np.int64).max  # torch computes with no larger ones
LONG = 8  # bytes of an integer that may be larger than both


def checked_target(column: DataColumn) -> Samples:
    """What outputs should be: numbers, all finite; whole numbers from 0 on, one a sample, are class numbers."""
    samples, origin = column.samples, column.origin
    if samples.dtype.kind not in NUMBER_KINDS:
        raise InputError(
            f"{origin} holds {samples.dtype}, not numbers", "number the classes from 0"
        )
    if samples.dtype.kind == "f":
        for start, chunk in iter_chunks(samples):
            if not np.isfinite(chunk).all():
                row = sample_of(samples, start + int(np.argwhere(~np.isfinite(chunk))[0][0]))
                raise InputError(
                    f"{origin} is not finite in sample {row}",
                    "remove or repair samples with NaN or inf",
                )
    if samples.shape not in ((), (1,)):
        return samples
    values = samples.take(np.arange(len(samples))).reshape(-1)
    whole = bool((values == np.rint(values)).all()) if values.dtype.kind == "f" else True
    is_class = whole and bool((values >= 0).all() and (values <= LARGEST_CLASS).all())
    return ClassNumbers(values.astype(np.int64)) if is_class else ArraySamples(values)


def check_samples(column: DataColumn, prepare: Preparation) -> None:
    """Refuse values that are not numbers, not finite, or that the model's input type cannot hold."""
    samples, origin, target = column.samples, column.origin, prepare.dtype
    if samples.dtype.kind not in NUMBER_KINDS:
        raise InputError(
            f"{origin} holds {samples.dtype}, not numbers", "store the samples as numbers"
        )
    if _holds_all(samples.dtype, target):
        return
    for start, chunk in iter_chunks(samples):
        place = find_lost_value(chunk, target)
        if place is not None:
            raise_lost_value(origin, chunk[place], sample_of(samples, start + place[0]), target)


def find_lost_value(values: Array, target: np.dtype[Any]) -> tuple[int, ...] | None:
    """The place of the first value that is not finite, or that an input of this type cannot hold."""
    if _holds_all(values.dtype, target):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        good = (
            np.isfinite(values.astype(target))
            if target.kind == "f"
            else values.astype(target) == values
        )
    if values.dtype.kind in "iu":
        most = LARGEST_WHOLE if target.kind == "f" else LARGEST_INTEGER
        good &= (values <= most) & (values >= -most - 1)
    return None if good.all() else tuple(int(i) for i in np.argwhere(~good)[0])


def raise_lost_value(origin: str, value: Any, row: int, target: np.dtype[Any]) -> NoReturn:
    """Say which value of which sample an input of this type cannot take."""
    if not np.isfinite(value):
        raise InputError(
            f"{origin} holds {value} in sample {row}", "remove or repair samples with NaN or inf"
        )
    raise InputError(
        f"{origin} holds {value} in sample {row}, which the model's input ({target}) cannot hold, or not exactly",
        "store values of the type the model takes",
    )


def _holds_all(stored: np.dtype[Any], target: np.dtype[Any]) -> bool:
    if target.kind == "f":
        return stored.kind != "f" and stored.itemsize < LONG
    return np.can_cast(stored, target, "safe") and stored != np.uint64


def make_sample_error(inputs: Mapping[str, Array], what: str, error: Exception) -> InputError:
    """The error for samples that pass all checks, and on which a model stops all the same."""
    given = ", ".join(
        f"{name!r} {x.dtype} {'×'.join(map(str, x.shape))}" for name, x in inputs.items()
    )
    line = summarize_error(error)
    remedy = "give samples of the sizes and with the values that the model was made for"
    return InputError(f"{what} on these samples, {given}: {line}", remedy)


def sample_of(samples: Samples, place: int) -> int:
    """The number of the sample that a row of `chunks` is, or is of, if ragged."""
    return samples.find_sample(place) if isinstance(samples, RaggedSamples) else place


def iter_chunks(samples: Samples) -> Iterator[tuple[int, Array]]:
    """Go through all samples, a few at a time, each time with the number of the first; through values, if ragged."""
    if isinstance(samples, RaggedSamples):
        samples = ArraySamples(samples.values)
    row_bytes = max(1, math.prod(n or 1 for n in samples.shape) * samples.dtype.itemsize)
    step = max(1, CHUNK_BYTES // row_bytes)
    for start in range(0, len(samples), step):
        yield start, samples.take(np.arange(start, min(start + step, len(samples))))
