"""Parquet and Arrow files: columns of numbers become inputs, and lists become sequences."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.data import limits
from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.data.formats.tables import SizeLimit, TableFile, read_table
from ltp_pipeline.data.open import open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings, TaskSettings

pa = pytest.importorskip("pyarrow", reason="pyarrow reads these files")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow reads these files")

TOKENS = [
    TensorInfo("input_ids", "INT64", ("N", "T")),
    TensorInfo("attention_mask", "INT64", ("N", "T")),
]
SEQUENCES = [[1, 2], [3], [4, 5, 6], [7], [8, 9], [10]]


def table(**more: Any) -> Any:
    return pa.table({"input_ids": SEQUENCES, "label": [0, 1, 0, 1, 0, 1], **more})


def opened(path: Path, inputs: Any = TOKENS) -> DatasetSplits:
    return open_data(DataSettings(path=path), inputs, 0)


def test_read_dataset_lists_are_sequences_with_a_mask(tmp_path: Path) -> None:
    parquet.write_table(table(), tmp_path / "words.parquet")
    data = opened(tmp_path / "words.parquet")
    batch = data.train.read_first(2)
    unpadded = [
        row[inside > 0].tolist() for row, inside in zip(*batch.inputs.values(), strict=True)
    ]
    assert unpadded == [SEQUENCES[row] for row in data.train.rows[:2]]
    assert data.num_classes == 2


def test_read_dataset_lists_of_one_length_are_arrays(tmp_path: Path) -> None:
    vectors = np.arange(24, dtype=np.float32).reshape(6, 2, 2)
    parquet.write_table(
        pa.table({"x": vectors.tolist(), "y": [0, 1] * 3}), tmp_path / "data.parquet"
    )
    data = opened(tmp_path / "data.parquet", [TensorInfo("image", "FLOAT", ("N", 2, 2))])
    np.testing.assert_array_equal(
        data.test.read_first(1).inputs["image"][0], vectors[data.test.rows[0]]
    )


def test_read_dataset_splits_follow_the_names_of_files(tmp_path: Path) -> None:
    for name in ("train-00000-of-00002", "train-00001-of-00002", "validation-00000", "test-00000"):
        parquet.write_table(table(), tmp_path / f"{name}.parquet")
    assert [len(split) for split in opened(tmp_path).splits] == [12, 6, 6]


def test_read_dataset_folder_of_datasets_is_read(tmp_path: Path) -> None:
    for split in ("train", "test"):
        folder = tmp_path / "saved" / split
        folder.mkdir(parents=True)
        with (
            pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as file,
            pa.ipc.new_stream(file, table().schema) as out,
        ):
            out.write_table(table())
        (folder / "state.json").write_text("{}")
    assert len(opened(tmp_path / "saved").test) == 6


def test_read_dataset_unused_columns_are_noted(tmp_path: Path) -> None:
    parquet.write_table(table(idx=list(range(6)), sentence=["a"] * 6), tmp_path / "words.parquet")
    notes = opened(tmp_path / "words.parquet").notes
    assert [note.rpartition(": ")[2] for note in notes[:2]] == ["sentence", "idx"]


def test_read_dataset_empty_list_raises(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"x": [[1.0], None], "y": [0, 1]}), tmp_path / "data.parquet")
    with pytest.raises(InputError) as caught:
        opened(tmp_path / "data.parquet", [TensorInfo("v", "FLOAT", ("N", 1))])
    assert "'x'" in caught.value.message


def test_read_dataset_file_that_is_no_table_raises(tmp_path: Path) -> None:
    (tmp_path / "data.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError) as caught:
        opened(tmp_path / "data.parquet")
    assert "data.parquet" in caught.value.message


def test_read_dataset_labels_of_text_raise(tmp_path: Path) -> None:
    words = ["good", "bad"] * 3
    parquet.write_table(table(label=words), tmp_path / "words.parquet")
    with pytest.raises(InputError) as caught:
        opened(tmp_path / "words.parquet")
    assert re.search(r"'label' of words\.parquet .*\bstring\b", caught.value.message)
    assert "table['label'].map" in caught.value.hint
    parquet.write_table(table(mood=pa.array(words).dictionary_encode()), tmp_path / "words.parquet")
    settings = DataSettings(path=tmp_path / "words.parquet")
    with pytest.raises(InputError) as caught:
        open_data(settings, TOKENS, 0, TaskSettings(target="mood"))
    assert re.search(r"'mood' of words\.parquet .*\bdictionary\b", caught.value.message)


def test_read_dataset_distillation_ignores_labels_of_text(tmp_path: Path) -> None:
    parquet.write_table(table(label=["good", "bad"] * 3), tmp_path / "words.parquet")
    data = open_data(
        DataSettings(path=tmp_path / "words.parquet"), TOKENS, 0, TaskSettings(kind="distillation")
    )
    assert not data.has_labels
    assert data.notes[0].endswith(": label")


def test_read_dataset_input_of_text_raises(tmp_path: Path) -> None:
    parquet.write_table(
        pa.table({"input_ids": ["a b", "c"], "label": [0, 1]}), tmp_path / "words.parquet"
    )
    with pytest.raises(InputError) as caught:
        opened(tmp_path / "words.parquet")
    assert "string" in caught.value.message
    assert "'input_ids'" in caught.value.message


@pytest.mark.parametrize("fixed", [False, True])
def test_read_dataset_lists_are_sequences_in_all_splits_or_none(
    tmp_path: Path, fixed: bool
) -> None:
    kind = pa.list_(pa.int64(), 4) if fixed else pa.list_(pa.int64())
    even = pa.table({"input_ids": pa.array([[1, 2, 3, 4]] * 6, kind), "label": [0, 1] * 3})
    parquet.write_table(table(), tmp_path / "train.parquet")
    parquet.write_table(even, tmp_path / "validation.parquet")
    batch = opened(tmp_path).val.read_first(2)
    assert batch.inputs["input_ids"].tolist() == [[1, 2, 3, 4]] * 2
    assert batch.inputs["attention_mask"].tolist() == [[1] * 4] * 2


def test_read_dataset_cached_results_of_datasets_are_ignored(tmp_path: Path) -> None:
    for name in ("data-00000-of-00001", "cache-0123456789abcdef"):
        with (
            pa.OSFile(str(tmp_path / f"{name}.arrow"), "wb") as file,
            pa.ipc.new_stream(file, table().schema) as out,
        ):
            out.write_table(table())
    assert sum(len(split) for split in opened(tmp_path).splits) == 6


def test_read_dataset_empty_field_in_a_list_raises(tmp_path: Path) -> None:
    sequences = [[1, None], *SEQUENCES[1:]]
    parquet.write_table(
        pa.table({"input_ids": sequences, "label": [0, 1] * 3}), tmp_path / "data.parquet"
    )
    with pytest.raises(InputError) as caught:
        opened(tmp_path / "data.parquet")
    assert "'input_ids' of data.parquet" in caught.value.message


def test_read_dataset_unused_column_may_be_in_one_split(tmp_path: Path) -> None:
    parquet.write_table(table(sentence=["a"] * 6), tmp_path / "train.parquet")
    parquet.write_table(table(), tmp_path / "test.parquet")
    assert len(opened(tmp_path).test) == 6


COLUMNS = {"x": [[1, 2], [3]], "text": ["a", "b"], "y": [0.5, 1.5]}


def write_file(file: Path, columns: Any) -> Path:
    if file.suffix == ".parquet":
        parquet.write_table(columns, file)
    else:
        with pa.ipc.new_stream(str(file), columns.schema) as stream:
            stream.write_table(columns, 1)
    return file


def open_file(file: Path, max_bytes: int | None = None) -> TableFile:
    return read_table(file, SizeLimit(file, limits.inspect_files([file]), max_bytes))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_read_table_columns_of_numbers_are_read_and_others_are_listed(
    tmp_path: Path, name: str
) -> None:
    file = open_file(write_file(tmp_path / name, pa.table(COLUMNS)))
    assert file.schema.names == ["x", "text", "y"]
    assert file.numbers.to_pydict() == {"x": [[1, 2], [3]], "y": [0.5, 1.5]}
    assert file.num_rows == 2


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_read_table_without_numbers_has_its_rows(tmp_path: Path, name: str) -> None:
    file = open_file(write_file(tmp_path / name, pa.table({"text": ["a", "b", "c"]})))
    assert file.num_rows == 3


def test_read_table_repeated_numbers_are_counted_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_file(tmp_path / "a.parquet", pa.table({"x": np.zeros(10**6)}))
    assert file.stat().st_size < 10**5
    monkeypatch.setattr(
        "ltp_pipeline.data.formats.tables._join_batches", lambda *_: pytest.fail("was read")
    )
    with pytest.raises(InputError) as caught:
        open_file(file, 7_999_999)
    assert "8,000,000" in caught.value.message


def test_read_table_batches_are_counted_as_they_are_read(tmp_path: Path) -> None:
    file = write_file(tmp_path / "a.arrow", pa.table({"x": np.zeros(64)}))  # in 64 batches
    limit = SizeLimit(file, limits.inspect_files([file]), max_bytes=10**6)
    read_table(file, limit)
    limit.check_bytes(10**6 - 64 * 8)
    with pytest.raises(InputError):
        limit.check_bytes(10**6 - 64 * 8 + 1)


def test_read_table_offsets_outside_of_an_array_raise(tmp_path: Path) -> None:
    file = write_file(tmp_path / "a.arrow", pa.table({"x": [[7, 8, 9]]}))
    offsets = np.array([0, 3], np.int32).tobytes()
    content = file.read_bytes()
    assert content.count(offsets) >= 1
    at = content.rindex(offsets)
    file.write_bytes(content[:at] + np.array([0, 10**6], np.int32).tobytes() + content[at + 8 :])
    with pytest.raises(InputError) as caught:
        open_file(file)
    assert str(file) in caught.value.message


def test_read_table_two_columns_of_one_name_raise(tmp_path: Path) -> None:
    columns = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    with pytest.raises(InputError) as caught:
        open_file(write_file(tmp_path / "a.arrow", columns))
    assert "'x'" in caught.value.message
