"""Labels that a task cannot take: what is wrong with them, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.data.checks import chunks
from ltp_pipeline.errors import InputError
from ltp_pipeline.task import TARGET

if TYPE_CHECKING:
    from ltp_pipeline.data import Data
    from ltp_pipeline.records import Array


def check_classes(data: Data, classes: int, ignored: int | None = None) -> None:
    """Refuse labels that the model has no output for."""
    lowest, highest = 0, 0
    for target in {id(s.targets[TARGET]): s.targets[TARGET] for s in data.splits}.values():
        for _, chunk in chunks(target):
            known = chunk if ignored is None else chunk[chunk != ignored]
            if known.size:
                lowest, highest = min(lowest, int(known.min())), max(highest, int(known.max()))
    if lowest < 0:
        remedy = "number the classes from 0"
        if ignored is not None:
            remedy += f"; labels that do not count are {ignored}, or ignored_label under [task]"
        raise InputError(f"the labels hold {lowest}, which is no class number", remedy)
    if highest < classes:
        return
    lowest = int(np.min(data.train.labels)) if data.train.labels is not None else 0
    what = f"the labels are {lowest}..{highest}, the model has {classes} classes (0..{classes - 1})"
    if lowest == 1 and highest == classes:
        raise InputError(what, "the labels count from 1: subtract 1 from each")
    raise InputError(what, "give the data the model was trained for, with its class numbers")


def check_multi_hot(data: Data) -> None:
    """Refuse what is neither 0 nor 1."""
    for target in {id(s.targets[TARGET]): s.targets[TARGET] for s in data.splits}.values():
        for start, chunk in chunks(target):
            wrong = np.argwhere((chunk != 0) & (chunk != 1))
            if len(wrong):
                row, value = start + int(wrong[0][0]), chunk[tuple(wrong[0])]
                raise InputError(f"the labels of sample {row} hold {value}", "mark labels by 1, and all others by 0")


def is_one_hot(labels: Array) -> bool:
    """Whether each row marks exactly one class."""
    if labels.ndim != 2 or labels.shape[1] < 2:
        return False
    return bool(((labels == 0) | (labels == 1)).all() and (labels.sum(1) == 1).all())
