"""Columns of named arrays, by split, and class numbers that the user assigns.

A name ends in _train, _val or _test. Arrays without such an end are divided into splits later.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from ltp_pipeline.data.dataset import ArraySamples, DataColumn, Part
from ltp_pipeline.data.sequences import RaggedSamples, check_offsets
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array

SPLITS = ("train", "val", "test")
ALL = "all"  # the part of data that are not divided into splits
OFFSETS_SUFFIX = "_offsets"
UNNAMED_CLASS = "(no name)"
NAMING_HINT = (
    "name the arrays x_train, y_train, x_val, y_val, x_test, y_test (or x and y only; without"
    " labels, x_… alone); for several inputs, INPUT_train, …"
)
MAX_NAMED = 5  # classes that an error names


def get_offsets_name(key: str, inputs: Collection[str]) -> str:
    """Return the name of the offsets of an array of sequences, which is no name of an input."""
    name = key + OFFSETS_SUFFIX
    while name in inputs:
        name += "_"
    return name


def group_columns(
    path: Path, keys: Collection[str], load: Callable[[str], Array], inputs: Collection[str]
) -> dict[str, Part]:
    """Return the columns of each part.

    Args:
        path: File or folder with the arrays, for messages.
        keys: Names of the arrays.
        load: Function from the name of an array to the array.
        inputs: Names of the model's inputs, which no offsets have.
    """
    offsets_by_key = {}
    for key in keys:
        name = get_offsets_name(key, inputs)
        if name in keys:
            offsets_by_key[key] = name
    value_keys = [key for key in keys if key not in offsets_by_key.values()]
    keys_by_part = _group_keys(path, value_keys)
    _check_same_names(path, keys_by_part)
    parts: dict[str, Part] = {}
    for part, columns in keys_by_part.items():
        loaded = {}
        for name, key in columns.items():
            loaded[name] = _load_column(path, key, offsets_by_key.get(key), load)
        parts[part] = loaded
    return parts


def _group_keys(path: Path, keys: Collection[str]) -> dict[str, dict[str, str]]:
    """Return, for each part, the names of arrays by the names of columns."""
    parts: dict[str, dict[str, str]] = {}
    for key in keys:
        name, _, split = key.rpartition("_")
        if name and split in SPLITS:
            parts.setdefault(split, {})[name] = key
        else:
            parts.setdefault(ALL, {})[key] = key
    if ALL not in parts and "train" not in parts:
        names = ", ".join(sorted(keys)) or "none"
        raise InputError(f"{path} has no x_train and y_train; its arrays are: {names}", NAMING_HINT)
    if ALL in parts and len(parts) > 1:
        unsplit = next(iter(parts[ALL]))
        other = next(key for split in SPLITS for key in parts.get(split, {}).values())
        raise InputError(
            f"{path} has {other}, but {unsplit} does not belong to a split", NAMING_HINT
        )
    return {split: parts[split] for split in (ALL, *SPLITS) if split in parts}


def _check_same_names(path: Path, parts: Mapping[str, Mapping[str, str]]) -> None:
    """Raise InputError if a part lacks a column that another part has."""
    names: dict[str, str] = {}
    for columns in parts.values():
        names |= columns
    for part, columns in parts.items():
        for name in names:
            if name not in columns:
                present = next(iter(columns.values()))
                missing = f"{name}_{part}"
                raise InputError(
                    f"{path} has {present}, but no {missing}", f"add {missing}, or remove {present}"
                )


def _load_column(
    path: Path, key: str, offsets_key: str | None, load: Callable[[str], Array]
) -> DataColumn:
    """Load a column: an array, or sequences if it has offsets."""
    origin = f"{key} of {path.name}"
    values = load(key)
    if offsets_key is None:
        return DataColumn(ArraySamples(values), origin)
    offsets = check_offsets(values, load(offsets_key), f"{offsets_key} of {path.name}")
    return DataColumn(RaggedSamples(values, offsets), origin)


def renumber_classes(
    labels: Array, names: Sequence[str] | None, classes: Mapping[str, int], origin: str
) -> Array:
    """Replace the class numbers of the data by those of the model.

    Args:
        labels: Class numbers of the data.
        names: Names of the classes by their numbers in the data; None if numbers are the names.
        classes: Class numbers of the model by name.
        origin: Name of the labels in messages.

    Raises:
        InputError: If a class has no number.
    """
    numbers, positions = np.unique(labels, return_inverse=True)
    present = list(map(str, numbers))
    if names is not None:
        present = [names[number] for number in numbers]
    missing = [name for name in present if name not in classes]
    if missing:
        raise InputError(
            f"classes in [data] has no number for {', '.join(map(repr, missing[:MAX_NAMED]))}"
            f" of {origin}",
            "set the number of every class in the model",
        )
    new_numbers: Array = np.array([classes[name] for name in present], np.int64)[positions]
    return new_numbers


def list_class_names(classes: Mapping[str, int]) -> tuple[str, ...]:
    """Return the name of each class by its number; several names may share a number."""
    names: list[list[str]] = [[] for _ in range(max(classes.values()) + 1)]
    for name, number in classes.items():
        names[number].append(name)
    return tuple(" or ".join(same_number) or UNNAMED_CLASS for same_number in names)
