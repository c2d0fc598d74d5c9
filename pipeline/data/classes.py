"""Class numbers as `[data] classes` gives them, where the model counts its classes in another order than the data."""

from collections.abc import Mapping, Sequence

import numpy as np

from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array

UNNAMED = "(no name)"


def renumbered(
    labels: Array, names: Sequence[str] | None, classes: Mapping[str, int], origin: str
) -> Array:
    """Replace the data's own numbers; a class is called by its folder, or else by the number that it has."""
    numbers = np.unique(labels)
    called = [names[i] if names is not None else str(i) for i in numbers]
    missing = [name for name in called if name not in classes]
    if missing:
        raise InputError(
            f"classes in [data] has no number for {', '.join(map(repr, missing[:5]))} of {origin}",
            "give every class the number that the model has for it",
        )
    given = np.array([classes[name] for name in called], np.int64)
    result: Array = given[np.searchsorted(numbers, labels)]
    return result


def names_by_number(classes: Mapping[str, int]) -> tuple[str, ...]:
    """What each number means; several names may share one."""
    names: list[list[str]] = [[] for _ in range(max(classes.values()) + 1)]
    for name, number in classes.items():
        names[number].append(name)
    return tuple(" or ".join(found) or UNNAMED for found in names)
