"""Division of samples into train, val and test, as far as the data are not divided."""

from collections.abc import Mapping

import numpy as np

from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array

SplitRows = dict[str, tuple[str, Array]]  # part and rows of each split


def split_off_rows(
    labels: Array, fraction: float, seed: int, stream: int = 0, min_kept: int = 1
) -> tuple[Array, Array]:
    """Divide rows at random so that each side has every class, if there are enough samples.

    Args:
        labels: Class number of each row.
        fraction: Fraction of the rows that are split off.
        seed: Seed of the random numbers.
        stream: Number of the division; each has its own random numbers.
        min_kept: Number of rows that stay at least.

    Returns:
        Rows that stay and rows that are split off, both sorted.
    """
    count = min(max(round(len(labels) * fraction), 1), len(labels) - min_kept)
    order = np.random.default_rng((seed, stream)).permutation(len(labels))
    _, group, sizes = np.unique(labels[order], return_inverse=True, return_counts=True)
    by_group = np.argsort(group, kind="stable")
    place = np.empty_like(by_group)  # index of a sample among those of its class
    place[by_group] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    group_size = sizes[group]
    # The first sample of each class is split off first, the last sample of each class last.
    rank = np.where(place == group_size - 1, 2, np.where(place == 0, 0, 1))
    ranked = order[np.argsort(rank, kind="stable")]
    return np.sort(ranked[count:]), np.sort(ranked[:count])


def divide_rows(
    labels: Mapping[str, Array], fraction: float, seed: int
) -> tuple[SplitRows, tuple[str, ...]]:
    """Choose the rows of each split.

    Args:
        labels: Class number of each row, by part.
        fraction: Fraction of the rows for a split that the data do not have.
        seed: Seed of the random numbers.

    Returns:
        Part and rows of each split, and a note for each split that the data do not have.

    Raises:
        InputError: If there are too few samples.
    """
    source = "all" if "all" in labels else "train"
    missing = [name for name in ("val", "test") if name not in labels]
    if source == "train" and "test" in missing:
        missing.remove("test")
    train = np.arange(len(labels[source]))
    if len(train) <= len(missing):
        raise InputError(
            f"{len(train)} training samples cannot be divided into train and"
            f" {' and '.join(missing)}",
            "add samples, or store validation and test samples of their own",
        )
    rows: SplitRows = {
        name: (name, np.arange(len(part))) for name, part in labels.items() if name != source
    }
    notes = []
    for stream, name in enumerate(reversed(missing)):
        min_kept = len(missing) - stream
        remaining, split_off = split_off_rows(
            labels[source][train], fraction, seed, stream, min_kept
        )
        notes.append(
            f"no {name} split: {len(split_off)} of {len(train)} samples were split off with seed"
            f" {seed}"
        )
        rows[name] = (source, train[split_off])
        train = train[remaining]
    rows["train"] = (source, train)
    if "test" not in rows:
        rows["test"] = rows["val"]
        notes.append("no test split: accuracy is measured on the validation split")
    return rows, tuple(notes)
