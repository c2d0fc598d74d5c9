"""Parquet and Arrow files: the columns that hold numbers, read batch by batch within a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ltp_pipeline.data import limits
from ltp_pipeline.errors import InputError, summarize_error

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".parquet", ".arrow")
INSTALL = "pip install 'ltp-pipeline[datasets]'"
WIDTHS = {
    "BOOLEAN": 1,
    "INT32": 4,
    "FLOAT": 4,
    "INT64": 8,
    "DOUBLE": 8,
}  # bytes of Parquet's numbers; others are none


class SizeLimit:
    """How much the files of a data set may hold, and how much those do that were read."""

    def __init__(self, path: Path, files: limits.FileSizes, limit: int | None) -> None:
        self._path, self._files, self._held = path, files, 0
        self._most = limits.check_size(path, files, limit, unpacked=0)

    def require(self, more: int) -> None:
        """Refuse more than there is room for."""
        if self._held + more > self._most:
            raise limits.make_size_error(self._path, self._held + more, self._files, self._most)

    def take(self, more: int) -> None:
        """Count what was read, whatever was promised."""
        self.require(more)
        self._held += more


class Read(NamedTuple):
    """A file: all that it says of its columns, and those of numbers."""

    schema: pa.Schema
    numbers: pa.Table
    rows: int


def read(file: Path, room: SizeLimit) -> Read:
    """Read the columns of numbers; what others hold is not looked at."""
    try:
        import pyarrow as pa
        from pyarrow import ipc, parquet
    except ImportError:
        raise InputError(f"pyarrow, which reads {file.name}, is not installed", INSTALL) from None
    try:
        if file.suffix == ".arrow":
            with pa.memory_map(str(file)) as mapped, ipc.open_stream(mapped) as stream:
                return _gathered(file, stream.schema, stream, room)
        with parquet.ParquetFile(file, memory_map=True) as opened:
            room.require(_promised(opened.metadata))
            wanted = [field.name for field in _of_numbers(opened.schema_arrow)]
            return _gathered(file, opened.schema_arrow, opened.iter_batches(columns=wanted), room)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{file} cannot be read: {summarize_error(error)}", "write the file again"
        ) from None


def holds_numbers(kind: Any) -> bool:
    """Whether a type is of numbers, or of lists of them."""
    import pyarrow as pa

    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):  # as `datasets` keeps arrays of several dimensions
        kind = kind.storage_type
    while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _of_numbers(schema: pa.Schema) -> list[pa.Field]:
    return [field for field in schema if holds_numbers(field.type)]


def _promised(metadata: Any) -> int:
    """Bytes of the numbers in a Parquet file; equal ones take next to nothing in it, so they are counted."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    chunks = (group.column(i) for group in groups for i in range(metadata.num_columns))
    return sum(c.num_values * WIDTHS.get(c.physical_type, 0) for c in chunks)


def _gathered(
    file: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], room: SizeLimit
) -> Read:
    """Join batches, each of which is found to be what it says before anything looks into it."""
    import pyarrow as pa

    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise InputError(
            f"{file} has two columns {twice[0]!r}", "give each column a name of its own"
        )
    wanted, rows, found = _of_numbers(schema), 0, []
    for batch in batches:
        rows += batch.num_rows
        numbers = batch.select([field.name for field in wanted])
        numbers.validate(full=True)
        room.take(numbers.nbytes)
        found.append(numbers)
    return Read(schema, pa.Table.from_batches(found, pa.schema(wanted)), rows)
