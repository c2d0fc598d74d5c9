"""Parquet and Arrow files: columns become inputs, lists of uneven length sequences."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.data.dataset import DatasetSplits
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


def test_lists_of_uneven_length_are_sequences_with_a_mask(tmp_path: Path) -> None:
    parquet.write_table(table(), tmp_path / "words.parquet")
    data = opened(tmp_path / "words.parquet")
    batch = data.train.read_first(2)
    kept = [row[inside > 0].tolist() for row, inside in zip(*batch.inputs.values(), strict=True)]
    assert kept == [SEQUENCES[row] for row in data.train.rows[:2]]
    assert data.num_classes == 2


def test_lists_of_one_length_are_arrays(tmp_path: Path) -> None:
    vectors = np.arange(24, dtype=np.float32).reshape(6, 2, 2)
    parquet.write_table(
        pa.table({"x": vectors.tolist(), "y": [0, 1] * 3}), tmp_path / "data.parquet"
    )
    data = opened(tmp_path / "data.parquet", [TensorInfo("image", "FLOAT", ("N", 2, 2))])
    np.testing.assert_array_equal(
        data.test.read_first(1).inputs["image"][0], vectors[data.test.rows[0]]
    )


def test_splits_are_told_by_the_names_of_files(tmp_path: Path) -> None:
    for name in ("train-00000-of-00002", "train-00001-of-00002", "validation-00000", "test-00000"):
        parquet.write_table(table(), tmp_path / f"{name}.parquet")
    assert [len(split) for split in opened(tmp_path).splits] == [12, 6, 6]


def test_a_folder_that_datasets_saved_is_read(tmp_path: Path) -> None:
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


def test_columns_that_nobody_takes_are_left_aside_with_a_note(tmp_path: Path) -> None:
    parquet.write_table(table(idx=list(range(6)), sentence=["a"] * 6), tmp_path / "words.parquet")
    notes = opened(tmp_path / "words.parquet").notes
    assert any("hold no numbers are left aside: sentence" in note for note in notes)
    assert any("no input takes are left aside: idx" in note for note in notes)


def test_an_empty_field_is_refused(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"x": [[1.0], None], "y": [0, 1]}), tmp_path / "data.parquet")
    with pytest.raises(InputError, match="1 empty field"):
        opened(tmp_path / "data.parquet", [TensorInfo("v", "FLOAT", ("N", 1))])


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="cannot be read"):
        opened(tmp_path / "data.parquet")


def test_labels_of_text_are_refused_with_the_column_and_what_to_do(tmp_path: Path) -> None:
    words = ["good", "bad"] * 3
    parquet.write_table(table(label=words), tmp_path / "words.parquet")
    with pytest.raises(
        InputError, match=r"column 'label' of words.parquet holds string, and labels are num"
    ) as told:
        opened(tmp_path / "words.parquet")
    assert "replace each text by the number" in told.value.hint
    parquet.write_table(table(mood=pa.array(words).dictionary_encode()), tmp_path / "words.parquet")
    with pytest.raises(InputError, match=r"column 'mood' of .* holds dictionary"):
        open_data(
            DataSettings(path=tmp_path / "words.parquet"), TOKENS, 0, TaskSettings(target="mood")
        )


def test_imitation_needs_no_labels_and_takes_a_table_with_text(tmp_path: Path) -> None:
    parquet.write_table(table(label=["good", "bad"] * 3), tmp_path / "words.parquet")
    data = open_data(
        DataSettings(path=tmp_path / "words.parquet"), TOKENS, 0, TaskSettings(kind="distillation")
    )
    assert not data.has_labels
    assert any("hold no numbers are left aside: label" in note for note in data.notes)


def test_an_input_of_text_is_refused(tmp_path: Path) -> None:
    parquet.write_table(
        pa.table({"input_ids": ["a b", "c"], "label": [0, 1]}), tmp_path / "words.parquet"
    )
    with pytest.raises(
        InputError, match="holds string, and the model's input 'input_ids' takes numbers"
    ):
        opened(tmp_path / "words.parquet")


@pytest.mark.parametrize("fixed", [False, True])
def test_lists_are_sequences_in_all_splits_where_they_are_in_one(
    tmp_path: Path, fixed: bool
) -> None:
    kind = pa.list_(pa.int64(), 4) if fixed else pa.list_(pa.int64())
    even = pa.table({"input_ids": pa.array([[1, 2, 3, 4]] * 6, kind), "label": [0, 1] * 3})
    parquet.write_table(table(), tmp_path / "train.parquet")
    parquet.write_table(even, tmp_path / "validation.parquet")
    batch = opened(tmp_path).val.read_first(2)
    assert batch.inputs["input_ids"].tolist() == [[1, 2, 3, 4]] * 2
    assert batch.inputs["attention_mask"].tolist() == [[1] * 4] * 2


def test_what_datasets_keeps_from_a_map_is_no_data(tmp_path: Path) -> None:
    for name in ("data-00000-of-00001", "cache-0123456789abcdef"):
        with (
            pa.OSFile(str(tmp_path / f"{name}.arrow"), "wb") as file,
            pa.ipc.new_stream(file, table().schema) as out,
        ):
            out.write_table(table())
    assert sum(len(split) for split in opened(tmp_path).splits) == 6


def test_an_empty_field_in_a_list_is_refused(tmp_path: Path) -> None:
    sequences = [[1, None], *SEQUENCES[1:]]
    parquet.write_table(
        pa.table({"input_ids": sequences, "label": [0, 1] * 3}), tmp_path / "data.parquet"
    )
    with pytest.raises(InputError, match=r"column 'input_ids' of data.parquet has 1 empty field$"):
        opened(tmp_path / "data.parquet")


def test_a_column_that_nobody_takes_may_be_in_one_split_only(tmp_path: Path) -> None:
    parquet.write_table(table(sentence=["a"] * 6), tmp_path / "train.parquet")
    parquet.write_table(table(), tmp_path / "test.parquet")
    assert len(opened(tmp_path).test) == 6
