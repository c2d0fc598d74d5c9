"""What is checked of samples and labels before anything is trained."""

import math
from collections.abc import Iterator

import numpy as np

from ltp_pipeline.data.preparation import Preparation
from ltp_pipeline.data.samples import Array, Data, Part, Samples
from ltp_pipeline.errors import InputError

CHUNK_BYTES = 16 * 2**20
NO_CLASSES = (
    "only class numbers are learned from; to learn from the original's own outputs instead, give the samples without "
    "labels: an .npz with x_… and no y_… (docs/training.md)"
)


def checked_labels(part: Part) -> Array | None:
    """Return the labels as int64, one per sample."""
    labels, origin = part.labels, part.labels_origin
    if not len(part.samples):
        raise InputError(f"{part.origin} is empty", "give samples, or leave the empty part out")
    if labels is None:
        return None
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        remedy = "give class numbers: argmax(axis=1) of these one-hot rows" if _one_hot(labels) else NO_CLASSES
        raise InputError(f"{origin} has shape {labels.shape}, not one class number per sample", remedy)
    if len(labels) != len(part.samples):
        raise InputError(
            f"{part.origin} has {len(part.samples)} samples but {origin} has {len(labels)} labels",
            "give one label for each sample",
        )
    if labels.dtype.kind not in "biuf":
        raise InputError(f"{origin} holds {labels.dtype}, not class numbers", "number the classes from 0")
    if labels.dtype.kind == "f":
        wrong = labels[~(np.isfinite(labels) & (labels == np.rint(labels)))]
        if len(wrong):
            raise InputError(f"{origin} holds {wrong[0]}, which is no class number", NO_CLASSES)
    if labels.min() < 0:
        raise InputError(f"{origin} holds the negative label {labels.min()}", "number the classes from 0")
    if labels.max() > np.iinfo(np.int32).max:
        raise InputError(f"{origin} holds the label {labels.max()}, which is no class number", "number them from 0")
    return labels.astype(np.int64)


def _one_hot(labels: Array) -> bool:
    """Whether each row marks exactly one class."""
    if labels.ndim != 2 or labels.shape[1] < 2 or labels.dtype.kind not in "biuf":
        return False
    return bool(((labels == 0) | (labels == 1)).all() and (labels.sum(1) == 1).all())


def check_labels(data: Data, classes: int) -> None:
    """Refuse labels the model has no output for."""
    if data.classes is None or data.classes <= classes:
        return
    lowest = min(int(s.labels.min()) for s in (data.train, data.val, data.test) if s.labels is not None)
    what = f"the labels are {lowest}..{data.classes - 1}, the model has {classes} classes (0..{classes - 1})"
    if lowest == 1 and data.classes - 1 == classes:
        raise InputError(what, "the labels count from 1: subtract 1 from each")
    raise InputError(what, "give the data the model was trained for, with its class numbers")


def check_samples(part: Part, prepare: Preparation) -> None:
    """Refuse values that are not numbers, not finite, or that the model's input type cannot hold."""
    samples, target = part.samples, prepare.dtype
    if samples.dtype.kind not in "biuf":
        raise InputError(f"{part.origin} holds {samples.dtype}, not numbers", "store the samples as numbers")
    if target.kind == "f" and samples.dtype.kind != "f":
        return
    if np.can_cast(samples.dtype, target, "safe") and target.kind != "f":
        return
    for start, chunk in chunks(samples):
        with np.errstate(over="ignore", invalid="ignore"):
            good = np.isfinite(chunk.astype(target)) if target.kind == "f" else chunk.astype(target) == chunk
        if good.all():
            continue
        first = np.argwhere(~good)[0]
        value, row = chunk[tuple(first)], start + int(first[0])
        if not np.isfinite(value):
            raise InputError(f"{part.origin} holds {value} in sample {row}", "remove or repair samples with NaN or inf")
        raise InputError(
            f"{part.origin} holds {value} in sample {row}, which the model's input ({target}) cannot hold",
            "store values of the type the model takes",
        )


def chunks(samples: Samples) -> Iterator[tuple[int, Array]]:
    """Go through all samples, a few at a time, each time with the number of the first."""
    row_bytes = max(1, math.prod(samples.shape) * samples.dtype.itemsize)
    step = max(1, CHUNK_BYTES // row_bytes)
    for start in range(0, len(samples), step):
        yield start, samples.take(np.arange(start, min(start + step, len(samples))))
