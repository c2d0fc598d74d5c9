"""Division of samples into splits."""

import re
from pathlib import Path

import numpy as np

from ltp_pipeline.data.splitting import split_off_rows
from tests.support.archives import get_open_error, make_images, make_labels, open_archive
from tests.support.samples import only_input


def test_split_off_rows_each_side_has_every_class_if_possible() -> None:
    classes = np.array([0] * 90 + [1] * 2 + [2] * 1 + [3] * 7)
    for seed in range(20):
        remaining, split_off = split_off_rows(classes, 0.1, seed)
        assert set(classes[remaining]) == {0, 1, 2, 3}
        assert set(classes[split_off]) == {0, 1, 3}


def test_divide_rows_missing_val_is_split_off_train(archive: Path) -> None:
    train = {"x_train": make_images(50, 4, 4), "y_train": make_labels(50)}
    np.savez(archive, **train, x_test=make_images(5, 4, 4), y_test=make_labels(5))
    data = open_archive(archive, validation_fraction=0.2)
    assert [len(split) for split in data.splits] == [40, 10, 5]
    (note,) = data.notes
    for part in ("val", "10 of 50", "seed 0"):
        assert part in note


def test_divide_rows_missing_test_is_the_val_split(archive: Path) -> None:
    train = {"x_train": make_images(10, 4, 4), "y_train": make_labels(10)}
    np.savez(archive, **train, x_val=make_images(5, 4, 4), y_val=make_labels(5))
    data = open_archive(archive)
    assert data.test is data.val
    assert data.test.name == "val"
    (note,) = data.notes
    assert "test" in note


def test_divide_rows_undivided_data_have_three_disjoint_splits(archive: Path) -> None:
    np.savez(archive, x=make_images(100, 4, 4, dtype=np.float32), y=make_labels(100))
    data = open_archive(archive)
    assert [len(split) for split in data.splits] == [81, 9, 10]
    assert [re.findall(r"\b(test|val)\b", note)[0] for note in data.notes] == ["test", "val"]
    samples = np.concatenate([only_input(split.read_first(100)) for split in data.splits])
    assert len(np.unique(samples.reshape(100, -1), axis=0)) == 100


def test_divide_rows_one_sample_raises(archive: Path) -> None:
    np.savez(archive, x_train=make_images(1, 4, 4), y_train=make_labels(1))
    assert "1 training sample" in get_open_error(archive).message
