"""How samples are divided into splits."""

from pathlib import Path

import numpy as np

from ltp_pipeline.data.splitting import split_off_rows
from tests.support.archives import images, labels, opened, refusal
from tests.support.samples import only


def test_each_side_of_a_division_sees_every_class_where_it_can() -> None:
    labels = np.array([0] * 90 + [1] * 2 + [2] * 1 + [3] * 7)
    for seed in range(20):
        kept, taken = split_off_rows(labels, 0.1, seed)
        assert set(labels[kept]) == {0, 1, 2, 3}
        assert set(labels[taken]) == {0, 1, 3}


def test_a_missing_val_is_split_off_train(archive: Path) -> None:
    np.savez(
        archive,
        x_train=images(50, 4, 4),
        y_train=labels(50),
        x_test=images(5, 4, 4),
        y_test=labels(5),
    )
    data = opened(archive, validation_fraction=0.2)
    assert (len(data.train), len(data.val), len(data.test)) == (40, 10, 5)
    assert data.notes == ("no val split: 10 of 50 samples were split off by seed 0",)


def test_a_missing_test_lets_val_serve_under_its_own_name(archive: Path) -> None:
    np.savez(
        archive,
        x_train=images(10, 4, 4),
        y_train=labels(10),
        x_val=images(5, 4, 4),
        y_val=labels(5),
    )
    data = opened(archive)
    assert data.test is data.val
    assert data.test.name == "val"
    assert data.notes == ("no test split: the validation split serves; accuracies are of val",)


def test_x_and_y_alone_are_divided_in_three(archive: Path) -> None:
    np.savez(archive, x=images(100, 4, 4, dtype=np.float32), y=labels(100))
    data = opened(archive)
    assert (len(data.train), len(data.val), len(data.test)) == (81, 9, 10)
    assert [note.split(":")[0] for note in data.notes] == ["no test split", "no val split"]
    everything = np.concatenate(
        [only(s.read(np.arange(len(s)))) for s in (data.train, data.val, data.test)]
    )
    assert len(np.unique(everything.reshape(100, -1), axis=0)) == 100


def test_one_sample_cannot_be_divided(archive: Path) -> None:
    np.savez(archive, x_train=images(1, 4, 4), y_train=labels(1))
    assert "1 training samples cannot be divided" in refusal(archive).message
