"""Named arrays become columns of splits, and classes get the numbers of the model."""

import re
from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.data.columns import get_offsets_name, list_class_names, renumber_classes
from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.data.open import open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.settings.schema import DataSettings
from tests.support.photos import get_open_error, make_pairs, open_photos, write_shard

A = TensorInfo("a", "INT64", ("N", "S"))
A_OFFSETS = TensorInfo("a_offsets", "INT64", ("N",))
VALUES, OFFSETS, NUMBERS = np.arange(8), np.array([0, 3, 4, 6, 8]), np.array([5, 6, 7, 8])


def open_arrays(folder: Path, **arrays: np.ndarray) -> DatasetSplits:
    np.savez(folder / "data.npz", **arrays)
    return open_data(DataSettings(path=folder / "data.npz"), [A, A_OFFSETS], 0)


def test_get_offsets_name_is_unique_and_no_input() -> None:
    inputs = ("a", "a_offsets", "a_offsets_", "a_offsets_offsets")
    names = [get_offsets_name(key, inputs) for key in inputs]
    assert len({*names, *inputs}) == 2 * len(inputs)
    assert get_offsets_name("a", ("a", "b")) == "a_offsets"


@pytest.mark.parametrize("has_splits", [False, True])
def test_group_columns_input_named_like_offsets_is_an_input(
    tmp_path: Path, has_splits: bool
) -> None:
    arrays = {"a": VALUES, "a_offsets": NUMBERS, "a_offsets_": OFFSETS}
    if has_splits:
        named = {"a_{}": VALUES, "a_{}_offsets": OFFSETS, "a_offsets_{}": NUMBERS}
        arrays = {
            key.format(split): array for key, array in named.items() for split in ("train", "val")
        }
    split = open_arrays(tmp_path, **arrays).train
    batch = split.read_first(2)
    expected = [VALUES[OFFSETS[row] : OFFSETS[row + 1]].tolist() for row in split.rows[:2]]
    rows = [row[: len(e)].tolist() for row, e in zip(batch.inputs["a"], expected, strict=True)]
    assert rows == expected
    assert batch.inputs["a_offsets"].tolist() == NUMBERS[split.rows[:2]].tolist()


def test_group_columns_offsets_with_the_name_of_an_input_are_that_input(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        open_arrays(tmp_path, a=VALUES, a_offsets=OFFSETS)
    assert re.search(r"\b8 samples\b.*\ba_offsets of data\.npz .*\b5\b", caught.value.message)


def test_renumber_classes_replaces_each_number() -> None:
    labels = np.array([2, 0, 2, 1])
    table = {"red": 5, "green": 0, "blue": 5}
    numbers = renumber_classes(labels, ("blue", "green", "red"), table, "labels")
    assert numbers.tolist() == [5, 5, 5, 0]
    by_number = renumber_classes(labels, None, {"0": 1, "1": 0, "2": 2}, "labels")
    assert by_number.tolist() == [2, 1, 2, 0]


def test_renumber_classes_class_without_number_raises() -> None:
    with pytest.raises(InputError) as caught:
        renumber_classes(np.array([0, 1]), ("a", "b"), {"a": 0, "c": 1}, "labels")
    assert "'b'" in caught.value.message


def test_list_class_names_joins_classes_with_one_number() -> None:
    assert list_class_names({"a": 1, "b": 3, "c": 1}) == ("(no name)", "a or c", "(no name)", "b")


def test_classes_setting_renumbers_folders(photos: Path) -> None:
    plain, renumbered = open_photos(photos), open_photos(photos, classes={"a": 4, "b": 1})
    assert (plain.num_classes, renumbered.num_classes) == (2, 5)
    assert renumbered.class_names == ("(no name)", "b", "(no name)", "(no name)", "a")
    table = {0: 4, 1: 1}  # a and b
    labels = {}
    for split in plain.splits:
        labels |= dict(zip(split.rows.tolist(), split.labels.tolist(), strict=True))
    for split in renumbered.splits:
        assert [table[labels[row]] for row in split.rows.tolist()] == split.labels.tolist()


def test_classes_setting_calls_classes_of_shards_by_their_numbers(tmp_path: Path) -> None:
    write_shard(tmp_path / "train" / "0.tar", make_pairs(range(6)))
    write_shard(tmp_path / "val" / "0.tar", make_pairs(range(4)))
    data = open_photos(tmp_path, classes={"0": 1, "1": 0})
    assert data.val.labels.tolist() == [1, 0, 1, 0]
    assert data.class_names == ("1", "0")


def test_classes_setting_without_labels_raises(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.zeros((30, 3, 8, 8), np.uint8))
    assert "classes" in get_open_error(tmp_path / "data.npz", classes={"0": 1}).hint


@pytest.mark.parametrize("number", ["-1", "0.5", "1000000", '"two"'])
def test_classes_setting_invalid_number_raises(tmp_path: Path, number: str) -> None:
    (tmp_path / "ltp.toml").write_text(f"[data.classes]\ncat = {number}\n")
    with pytest.raises(InputError) as caught:
        load_settings(None, tmp_path / "ltp.toml")
    assert "data.classes.cat" in caught.value.message
