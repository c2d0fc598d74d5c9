"""Parquet files, and folders that Hugging Face's `datasets` saved: a column for each input, a row for each sample."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline.data import limits
from ltp_pipeline.data.dataset import (
    ArraySamples,
    DataColumn,
    LoadOptions,
    NonNumericColumn,
    Part,
    RawDataset,
    Samples,
)
from ltp_pipeline.data.formats import arrow_files
from ltp_pipeline.data.formats.arrow_files import SUFFIXES, SizeLimit
from ltp_pipeline.data.formats.image_folder import SPLITS
from ltp_pipeline.data.images.collection import hash_files
from ltp_pipeline.data.sequences import RaggedSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.text import pluralize

if TYPE_CHECKING:
    import pyarrow as pa

CACHED = "cache-*.arrow"  # what `datasets` keeps beside the data: results of a map or a filter


def can_read(path: Path) -> bool:
    """Say whether this is such a file, or a folder with such files in it or in its folders."""
    return path.suffix in SUFFIXES if path.is_file() else path.is_dir() and bool(_files(path))


def read_dataset(path: Path, want: LoadOptions) -> RawDataset:
    """Map the columns that hold numbers, or lists of them; what others hold is not read."""
    splits, files = _splits(path), _files(path)
    on_disk = limits.inspect_files(files)
    room = SizeLimit(path, on_disk, want.max_bytes)
    found = {split: _columns(inside, room) for split, inside in splits.items()}
    lengths = _lengths(found.values())
    parts: dict[str, Part] = {
        split: {
            name: DataColumn(_even(c.samples, lengths.get(name)), c.origin)
            for name, c in columns.items()
        }
        for split, columns in found.items()
    }
    made_of = hash_files(
        [(str(file.relative_to(path) if path.is_dir() else file.name), str(file)) for file in files]
    )
    return RawDataset(parts, made_of, notes=on_disk.notes, is_table=True)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    inside = [path, *(folder for folder in sorted(path.iterdir()) if folder.is_dir())]
    files = (
        file
        for folder in inside
        for file in folder.iterdir()
        if file.suffix in SUFFIXES and not file.is_dir()
    )
    return sorted(file for file in files if not file.match(CACHED))


def _splits(path: Path) -> dict[str, list[Path]]:
    """The files of each split, told by the folder they are in or by their names."""
    named: dict[str, list[Path]] = {}
    for file in _files(path):
        inside = file.parent.name if file.parent != path else ""
        words = (
            set(re.findall("[a-z]+", f"{inside} {file.stem}".lower())) if path.is_dir() else set()
        )
        split = next((split for split, names in SPLITS.items() if words & {*names}), "all")
        named.setdefault(split, []).append(file)
    if len(named) == 1:
        return {"all": next(iter(named.values()))}
    if "all" in named or "train" not in named:
        odd = named.get("all", next(iter(named.values())))[0]
        raise InputError(
            f"nothing tells which split {odd} is of",
            "name files or folders train, validation, test",
        )
    return named


def _columns(files: list[Path], room: SizeLimit) -> Part:
    import pyarrow as pa

    found = [arrow_files.read(file, room) for file in files]
    schema, rows = found[0].schema, sum(one.rows for one in found)
    if not all(one.schema.equals(schema) for one in found):
        raise InputError(
            f"{_shown(files)} have different columns", "give the files of a split the same ones"
        )
    numbers = pa.concat_tables([one.numbers for one in found])
    columns = {}
    for field in schema:
        origin = f"column {field.name!r} of {_shown(files)}"
        is_read = field.name in numbers.column_names
        samples = (
            _samples(numbers.column(field.name), origin)
            if is_read
            else NonNumericColumn(rows, str(field.type))
        )
        columns[field.name] = DataColumn(samples, origin)
    return columns


def _lengths(splits: Iterable[Part]) -> dict[str, int]:
    """The columns whose lists have one length, over all splits, and that length."""
    found: dict[str, set[int]] = {}
    for columns in splits:
        for name, column in columns.items():
            if isinstance(column.samples, RaggedSamples):
                found.setdefault(name, set()).update(
                    np.unique(np.diff(column.samples.offsets)).tolist()
                )
    return {name: next(iter(lengths)) for name, lengths in found.items() if len(lengths) == 1}


def _even(samples: Samples, length: int | None) -> Samples:
    """Lists that have this length as an array."""
    if length is None or not isinstance(samples, RaggedSamples):
        return samples
    return ArraySamples(samples.values.reshape(len(samples), length, *samples.values.shape[1:]))


def _samples(column: pa.ChunkedArray, origin: str) -> Samples:
    """A column as samples; lists may differ in length."""
    import pyarrow as pa

    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    if isinstance(array, pa.ExtensionArray):  # as `datasets` keeps arrays of several dimensions
        array = array.storage
    _check_full(array, origin)
    if pa.types.is_fixed_size_list(array.type):
        return RaggedSamples(
            _dense(array.flatten(), origin), np.arange(len(array) + 1) * array.type.list_size
        )
    if not pa.types.is_list(array.type) and not pa.types.is_large_list(array.type):
        return ArraySamples(_dense(array, origin))
    offsets = array.offsets.to_numpy().astype(np.int64)
    return RaggedSamples(
        _dense(array.values[offsets[0] : offsets[-1]], origin), offsets - offsets[0]
    )


def _check_full(array: Any, origin: str) -> None:
    if array.null_count:
        raise InputError(
            f"{origin} has {pluralize(array.null_count, 'empty field')}",
            "fill or remove those rows",
        )


def _dense(array: Any, origin: str) -> Array:
    """Numbers, and lists that are all of one length."""
    import pyarrow as pa

    _check_full(array, origin)
    if pa.types.is_fixed_size_list(array.type):
        inner = _dense(array.flatten(), origin)
        return inner.reshape(len(array), array.type.list_size, *inner.shape[1:])
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        lengths = np.diff(array.offsets.to_numpy())
        if len(set(lengths.tolist())) > 1:
            raise InputError(
                f"{origin} has lists of other lengths within a sample", "pad the inner lists"
            )
        inner = _dense(array.flatten(), origin)
        return inner.reshape(len(array), int(lengths[0]) if len(lengths) else 0, *inner.shape[1:])
    found: Array = array.to_numpy(zero_copy_only=False)
    return found


def _shown(files: list[Path]) -> str:
    return files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"
