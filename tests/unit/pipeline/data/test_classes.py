"""Class numbers that `[data] classes` gives, for folders, shards and arrays."""

from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.load import load_settings
from tests.support.photos import jpeg, opened, pairs, put, refusal, shard

PER_CLASS = 10


def test_folders_get_the_numbers_of_the_table(photos: Path) -> None:
    plain, numbered = opened(photos), opened(photos, classes={"a": 4, "b": 1})
    assert (plain.num_classes, numbered.num_classes) == (2, 5)
    assert sorted({*numbered.train.labels}) == [1, 4]
    assert numbered.class_names == ("(no name)", "b", "(no name)", "(no name)", "a")
    a = opened(photos, classes={"a": 0, "b": 1})
    assert a.class_names == plain.class_names == ("a", "b")
    for split in ("train", "val", "test"):
        np.testing.assert_array_equal(getattr(a, split).labels, getattr(plain, split).labels)


def test_each_image_keeps_its_class(tmp_path: Path) -> None:
    for i in range(3 * PER_CLASS):
        put(tmp_path / ("red", "green", "blue")[i % 3] / f"{i:02}.jpg", jpeg(i))
    table = {"red": 0, "green": 1, "blue": 2}
    plain, numbered = opened(tmp_path), opened(tmp_path, classes=table)
    names = ("blue", "green", "red")
    by_row = {
        int(row): names[label]
        for split in (plain.train, plain.val, plain.test)
        for row, label in zip(split.rows, split.labels, strict=True)
    }
    for split in (numbered.train, numbered.val, numbered.test):
        assert [table[by_row[int(row)]] for row in split.rows] == split.labels.tolist()


def test_two_folders_may_be_one_class(photos: Path) -> None:
    data = opened(photos, classes={"a": 1, "b": 1})
    assert {*data.train.labels} == {1}
    assert data.class_names == ("(no name)", "a or b")


def test_a_folder_without_a_number_is_named(photos: Path) -> None:
    told = refusal(photos, classes={"a": 0, "c": 1})
    assert "no number for 'b'" in told.message


def test_shards_and_arrays_call_a_class_by_its_number(tmp_path: Path) -> None:
    shard(tmp_path / "train" / "0.tar", pairs(range(6)))
    shard(tmp_path / "val" / "0.tar", pairs(range(4)))
    data = opened(tmp_path, classes={"0": 1, "1": 0})
    assert data.val.labels.tolist() == [1, 0, 1, 0]
    assert data.class_names == ("1", "0")
    x = np.zeros((30, 3, 8, 8), np.uint8)
    np.savez(
        tmp_path / "data.npz", x_train=x, y_train=np.arange(30) % 3, x_val=x[:3], y_val=[0, 1, 2]
    )
    assert opened(tmp_path / "data.npz", classes={"0": 2, "1": 0, "2": 1}).val.labels.tolist() == [
        2,
        0,
        1,
    ]


def test_a_table_for_samples_without_labels_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.zeros((30, 3, 8, 8), np.uint8))
    assert "no labels" in refusal(tmp_path / "data.npz", classes={"0": 1}).message


@pytest.mark.parametrize("number", ["-1", "0.5", "1000000", '"two"'])
def test_what_is_no_class_number_is_refused(tmp_path: Path, number: str) -> None:
    (tmp_path / "ltp.toml").write_text(f"[data.classes]\ncat = {number}\n")
    with pytest.raises(InputError, match=r"data\.classes\.cat"):
        load_settings(None, tmp_path / "ltp.toml")
