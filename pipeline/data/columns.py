"""Arrays by name, as archives and folders of arrays hold them: which split each belongs to, under which name.

A name ends in _train, _val or _test; names without such an end are of data that are still to be divided.
"""

from collections.abc import Callable, Collection
from pathlib import Path

from ltp_pipeline.data.dataset import ArraySamples, DataColumn, Part, Samples
from ltp_pipeline.data.sequences import RaggedSamples, check_offsets
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array

SPLITS = ("train", "val", "test")
ALL = "all"
OFFSETS_SUFFIX = (
    "_offsets"  # of NAME: where each sample of uneven length begins, and the last one ends
)
NAMING = (
    "name the arrays x_train, y_train, x_val, y_val, x_test, y_test (or x and y only; without labels, x_… alone); "
    "for several inputs, INPUT_train, …"
)


def get_offsets_name(key: str, inputs: Collection[str]) -> str:
    """What the offsets of an array are called: KEY_offsets, or KEY_offsets_ where an input is called that."""
    name = key + OFFSETS_SUFFIX
    while name in inputs:
        name += "_"
    return name


def group_columns(
    path: Path, present: Collection[str], load: Callable[[str], Array], inputs: Collection[str]
) -> dict[str, Part]:
    """The columns of each part, from arrays that `load` gives by name; `inputs` are those of the model."""
    offsets = {key: name for key in present if (name := get_offsets_name(key, inputs)) in present}
    parts = _keys(path, [key for key in present if key not in offsets.values()])
    _check_same_columns(path, parts)
    return {
        part: {name: _column(path, key, offsets.get(key), load) for name, key in keys.items()}
        for part, keys in parts.items()
    }


def _keys(path: Path, present: Collection[str]) -> dict[str, dict[str, str]]:
    """For each part the columns' names, and the names of their arrays."""
    parts: dict[str, dict[str, str]] = {}
    for key in present:
        name, _, split = key.rpartition("_")
        if name and split in SPLITS:
            parts.setdefault(split, {})[name] = key
        else:
            parts.setdefault(ALL, {})[key] = key
    if not parts or (ALL not in parts and "train" not in parts):
        raise InputError(
            f"{path} has no x_train and y_train; its arrays are: {', '.join(sorted(present)) or 'none'}",
            NAMING,
        )
    if ALL in parts and len(parts) > 1:
        lone, other = (
            next(iter(parts[ALL])),
            next(key for split in SPLITS for key in parts.get(split, {}).values()),
        )
        raise InputError(
            f"{path} has {lone} beside {other}, and {lone} belongs to no split", NAMING
        )
    return {split: parts[split] for split in (ALL, *SPLITS) if split in parts}


def _check_same_columns(path: Path, parts: dict[str, dict[str, str]]) -> None:
    """Every split has what the others have."""
    names = dict.fromkeys(name for columns in parts.values() for name in columns)
    for part, columns in parts.items():
        for name in names:
            if name not in columns:
                there, missing = next(iter(columns.values())), f"{name}_{part}"
                raise InputError(
                    f"{path} has {there} but no {missing}", f"add {missing}, or leave {there} out"
                )


def _column(path: Path, key: str, offsets: str | None, load: Callable[[str], Array]) -> DataColumn:
    origin, values = f"{key} of {path.name}", load(key)
    samples: Samples = ArraySamples(values)
    if offsets is not None:
        samples = RaggedSamples(
            values, check_offsets(values, load(offsets), f"{offsets} of {path.name}")
        )
    return DataColumn(samples, origin)
