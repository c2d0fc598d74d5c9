"""Parquet and Arrow files: columns of numbers within a limit, and nothing of the others."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc
from pyarrow import parquet as files

from ltp_pipeline.data import limits
from ltp_pipeline.data.formats.arrow_files import SizeLimit, read
from ltp_pipeline.errors import InputError

COLUMNS = {"x": [[1, 2], [3]], "text": ["a", "b"], "y": [0.5, 1.5]}


def write(file: Path, table: pa.Table, **options: object) -> Path:
    if file.suffix == ".parquet":
        files.write_table(table, file, **options)
    else:
        with ipc.new_stream(str(file), table.schema) as stream:
            stream.write_table(table, 1)
    return file


def opened(file: Path, limit: int | None = None):
    return read(file, SizeLimit(file, limits.inspect_files([file]), limit))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_columns_of_numbers_are_read_and_others_are_named(tmp_path: Path, name: str) -> None:
    found = opened(write(tmp_path / name, pa.table(COLUMNS)))
    assert found.schema.names == ["x", "text", "y"]
    assert found.numbers.to_pydict() == {"x": [[1, 2], [3]], "y": [0.5, 1.5]}
    assert found.rows == 2


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_table_without_numbers_has_its_rows(tmp_path: Path, name: str) -> None:
    assert opened(write(tmp_path / name, pa.table({"text": ["a", "b", "c"]}))).rows == 3


def test_equal_numbers_that_take_no_room_in_a_file_are_counted_before_they_are_read(
    tmp_path: Path, monkeypatch
) -> None:
    file = write(tmp_path / "a.parquet", pa.table({"x": np.zeros(10**6)}))
    assert file.stat().st_size < 10**5
    monkeypatch.setattr(
        "ltp_pipeline.data.formats.arrow_files._gathered", lambda *_: pytest.fail("was read")
    )
    with pytest.raises(InputError, match="says that it holds 8,000,000"):
        opened(file, 7_999_999)


def test_batches_are_counted_as_they_are_read(tmp_path: Path) -> None:
    file = write(tmp_path / "a.arrow", pa.table({"x": np.zeros(64)}))  # in 64 batches
    room = SizeLimit(file, limits.inspect_files([file]), limit=10**6)
    read(file, room)
    room.require(10**6 - 64 * 8)
    with pytest.raises(InputError):
        room.require(10**6 - 64 * 8 + 1)


def test_offsets_that_lead_out_of_an_array_are_told(tmp_path: Path) -> None:
    file = write(tmp_path / "a.arrow", pa.table({"x": [[7, 8, 9]]}))
    offsets = np.array([0, 3], np.int32).tobytes()
    content = file.read_bytes()
    assert content.count(offsets) >= 1
    at = content.rindex(offsets)
    file.write_bytes(content[:at] + np.array([0, 10**6], np.int32).tobytes() + content[at + 8 :])
    with pytest.raises(InputError, match="cannot be read"):
        opened(file)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    with pytest.raises(InputError, match="two columns 'x'"):
        opened(write(tmp_path / "a.arrow", table))
