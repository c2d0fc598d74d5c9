"""Parquet files, and folders that Hugging Face's `datasets` saved: one column for each input."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ltp_pipeline.data import limits
from ltp_pipeline.data.dataset import (
    ArraySamples,
    DataColumn,
    LoadOptions,
    NonNumericColumn,
    RawDataset,
    Samples,
)
from ltp_pipeline.data.formats.image_folder import group_by_split
from ltp_pipeline.data.images.collection import hash_files
from ltp_pipeline.data.sequences import RaggedSamples
from ltp_pipeline.errors import InputError, summarize_error
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.text import pluralize

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".parquet", ".arrow")
CACHE_FILES = "cache-*.arrow"  # results of a map or a filter that `datasets` stores with the data
INSTALL_HINT = "pip install 'ltp-pipeline[datasets]'"
# Bytes of the numeric types of Parquet; the other types are not numbers.
TYPE_BYTES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8}


class SizeLimit:
    """The size of the columns that were read from the files of a data set, and its limit."""

    def __init__(self, path: Path, files: limits.FileSizes, max_bytes: int | None) -> None:
        self._path = path
        self._files = files
        self._bytes_read = 0
        self._limit = limits.check_size(path, files, max_bytes, unpacked=0)

    def check_bytes(self, num_bytes: int) -> None:
        """Raise InputError if further bytes would exceed the limit."""
        total = self._bytes_read + num_bytes
        if total > self._limit:
            raise limits.make_size_error(self._path, total, self._files, self._limit)

    def add_bytes(self, num_bytes: int) -> None:
        """Count bytes that were read; raise InputError if they exceed the limit."""
        self.check_bytes(num_bytes)
        self._bytes_read += num_bytes


class TableFile(NamedTuple):
    """A file: the schema of all columns, and the columns with numbers."""

    schema: pa.Schema
    numbers: pa.Table
    num_rows: int


def can_read(path: Path) -> bool:
    """Return whether a path is a table, or a folder with tables in it or in its folders."""
    if path.is_file():
        return path.suffix in SUFFIXES
    return path.is_dir() and bool(_list_files(path))


def read_dataset(path: Path, options: LoadOptions) -> RawDataset:
    """Read the columns with numbers, or with lists of numbers, of all splits."""
    files = _list_files(path)
    sizes = limits.inspect_files(files)
    limit = SizeLimit(path, sizes, options.settings.max_bytes)
    parts = {}
    for split, split_files in _group_files(path, files).items():
        parts[split] = _read_columns(split_files, limit)
    _convert_even_lists(parts)
    names = [path.name]
    if path.is_dir():
        names = [str(file.relative_to(path)) for file in files]
    fingerprint = hash_files(list(zip(names, map(str, files), strict=True)))
    return RawDataset(parts, fingerprint, notes=sizes.notes, is_table=True)


def _list_files(path: Path) -> list[Path]:
    """Return the tables at a path, without cached ones."""
    if path.is_file():
        return [path]
    folders = [path, *(folder for folder in sorted(path.iterdir()) if folder.is_dir())]
    files = []
    for folder in folders:
        for file in folder.iterdir():
            if file.suffix in SUFFIXES and not file.is_dir() and not file.match(CACHE_FILES):
                files.append(file)
    return sorted(files)


def _group_files(path: Path, files: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the files of each split, by the names of their folders and their own names."""
    if path.is_file():
        return {"all": list(files)}
    words = {}
    for file in files:
        folder = ""
        if file.parent != path:
            folder = file.parent.name
        words[file] = f"{folder} {file.stem}"
    return group_by_split(path, words)


def _read_columns(files: Sequence[Path], limit: SizeLimit) -> dict[str, DataColumn]:
    """Read the columns of a split."""
    import pyarrow as pa

    tables = [read_table(file, limit) for file in files]
    schema = tables[0].schema
    names = files[0].name
    if len(files) > 1:
        names += f" and {len(files) - 1} more"
    if not all(table.schema.equals(schema) for table in tables):
        raise InputError(
            f"{names} have different columns", "store the same columns in all files of a split"
        )
    numbers = pa.concat_tables([table.numbers for table in tables])
    num_rows = sum(table.num_rows for table in tables)
    columns = {}
    for column in schema:
        origin = f"column {column.name!r} of {names}"
        samples: Samples = NonNumericColumn(num_rows, str(column.type))
        if column.name in numbers.column_names:
            samples = _convert_column(numbers.column(column.name), origin)
        columns[column.name] = DataColumn(samples, origin)
    return columns


def read_table(file: Path, limit: SizeLimit) -> TableFile:
    """Read the columns with numbers of a Parquet or Arrow file; other columns are not read.

    Raises:
        InputError: If the file cannot be read, or all files of the data set are too large.
    """
    try:
        import pyarrow as pa
        from pyarrow import ipc, parquet
    except ImportError:
        raise InputError(
            f"{file.name} needs pyarrow, which is not installed", INSTALL_HINT
        ) from None
    try:
        if file.suffix == ".arrow":
            with pa.memory_map(str(file)) as mapped, ipc.open_stream(mapped) as stream:
                return _join_batches(file, stream.schema, stream, limit)
        with parquet.ParquetFile(file, memory_map=True) as opened:
            schema = opened.schema_arrow
            limit.check_bytes(_count_declared_bytes(opened.metadata))
            names = [column.name for column in _select_numeric(schema)]
            return _join_batches(file, schema, opened.iter_batches(columns=names), limit)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{file} cannot be read: {summarize_error(error)}", "write the file again"
        ) from None


def _select_numeric(schema: pa.Schema) -> list[pa.Field]:
    """Return the columns with numbers."""
    return [column for column in schema if is_numeric(column.type)]


def is_numeric(kind: Any) -> bool:
    """Return whether an Arrow type is one of numbers, or of lists of numbers."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):  # `datasets` stores arrays with several axes so
        kind = kind.storage_type
    while _is_list(kind):
        kind = kind.value_type
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_list(kind: Any) -> bool:
    """Return whether an Arrow type is one of lists."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _count_declared_bytes(metadata: Any) -> int:
    """Return the bytes of all numbers in a Parquet file; repeated values are stored only once."""
    total = 0
    for i in range(metadata.num_row_groups):
        for j in range(metadata.num_columns):
            chunk = metadata.row_group(i).column(j)
            total += chunk.num_values * TYPE_BYTES.get(chunk.physical_type, 0)
    return total


def _join_batches(
    file: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], limit: SizeLimit
) -> TableFile:
    """Join the numeric columns of batches, after each batch was checked for consistency."""
    import pyarrow as pa

    duplicates = [name for name, count in Counter(schema.names).items() if count > 1]
    if duplicates:
        raise InputError(
            f"{file} has two columns {duplicates[0]!r}", "name each column differently"
        )
    columns = _select_numeric(schema)
    num_rows = 0
    numeric_batches = []
    for batch in batches:
        num_rows += batch.num_rows
        numeric = batch.select([column.name for column in columns])
        numeric.validate(full=True)
        limit.add_bytes(numeric.nbytes)
        numeric_batches.append(numeric)
    numbers = pa.Table.from_batches(numeric_batches, pa.schema(columns))
    return TableFile(schema, numbers, num_rows)


def _convert_column(column: pa.ChunkedArray, origin: str) -> Samples:
    """Return a column as samples; lists become sequences of uneven length."""
    import pyarrow as pa
    from pyarrow import compute as pc

    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    _check_complete(array, origin)
    if not _is_list(array.type):
        return ArraySamples(_convert_array(array, origin))
    lengths = pc.list_value_length(array).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return RaggedSamples(_convert_array(array.flatten(), origin), offsets)


def _convert_array(array: Any, origin: str) -> Array:
    """Return numbers, or lists of one length, as an array."""
    import pyarrow as pa
    from pyarrow import compute as pc

    _check_complete(array, origin)
    if not _is_list(array.type):
        values: Array = array.to_numpy(zero_copy_only=False)
        return values
    if pa.types.is_fixed_size_list(array.type):
        length = array.type.list_size
    else:
        lengths = np.unique(pc.list_value_length(array).to_numpy())
        if len(lengths) > 1:
            raise InputError(
                f"{origin} has lists of different lengths within a sample", "pad the inner lists"
            )
        length = int(lengths[0]) if len(lengths) else 0
    values = _convert_array(array.flatten(), origin)
    return values.reshape(len(array), length, *values.shape[1:])


def _check_complete(array: Any, origin: str) -> None:
    """Raise InputError if fields are empty."""
    if array.null_count:
        raise InputError(
            f"{origin} has {pluralize(array.null_count, 'empty field')}",
            "fill or remove those rows",
        )


def _convert_even_lists(parts: Mapping[str, dict[str, DataColumn]]) -> None:
    """Replace lists that have one length in all splits by arrays."""
    lengths = defaultdict[str, set[int]](set)
    for part in parts.values():
        for name, column in part.items():
            if isinstance(column.samples, RaggedSamples):
                lengths[name].update(np.unique(np.diff(column.samples.offsets)).tolist())
    for part in parts.values():
        for name, column in part.items():
            samples = column.samples
            if isinstance(samples, RaggedSamples) and len(lengths[name]) == 1:
                (length,) = lengths[name]
                shape = (len(samples), length, *samples.values.shape[1:])
                part[name] = DataColumn(ArraySamples(samples.values.reshape(shape)), column.origin)
