"""Which samples are for training, validation and test where the user has not said."""

from collections.abc import Mapping

import numpy as np

from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array

Rows = dict[str, tuple[str, Array]]  # split → (part it comes from, rows of that part)


def split_off_rows(
    labels: Array, share: float, seed: int, stream: int = 0, keep: int = 1
) -> tuple[Array, Array]:
    """Divide rows at random into (kept, taken); each side sees every class where the numbers allow it."""
    count = min(max(round(len(labels) * share), 1), len(labels) - keep)
    order = np.random.default_rng((seed, stream)).permutation(len(labels))
    _, group, sizes = np.unique(labels[order], return_inverse=True, return_counts=True)
    by_group = np.argsort(group, kind="stable")
    place = np.empty_like(by_group)  # of a sample among those of its class
    place[by_group] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    size = sizes[group]
    # The first of each class is taken first, the last of each class is taken last.
    urgency = np.where(place == size - 1, 2, np.where(place == 0, 0, 1))
    ranked = order[np.argsort(urgency, kind="stable")]
    return np.sort(ranked[count:]), np.sort(ranked[:count])


def divide_rows(
    labels: Mapping[str, Array], share: float, seed: int
) -> tuple[Rows, tuple[str, ...]]:
    """Choose the rows of each split, with a note for each decision that the data did not make."""
    source = "all" if "all" in labels else "train"
    train = np.arange(len(labels[source]))
    missing = [
        name
        for name in ("val", "test")
        if name not in labels and (name == "val" or source == "all")
    ]
    if len(train) <= len(missing):
        raise InputError(
            f"{len(train)} training samples cannot be divided into train and {' and '.join(missing)}",
            "give more samples, or validation and test samples of their own",
        )
    rows: Rows = {
        name: (name, np.arange(len(part))) for name, part in labels.items() if name != source
    }
    notes = []
    for stream, name in enumerate(reversed(missing)):
        kept, taken = split_off_rows(
            labels[source][train], share, seed, stream, keep=len(missing) - stream
        )
        notes.append(
            f"no {name} split: {len(taken)} of {len(train)} samples were split off by seed {seed}"
        )
        train, rows[name] = train[kept], (source, train[taken])
    rows["train"] = (source, train)
    if "test" not in rows:
        rows["test"] = rows["val"]
        notes.append("no test split: the validation split serves; accuracies are of val")
    return rows, tuple(notes)
