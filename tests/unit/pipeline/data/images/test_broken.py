"""Broken images in training: another of the class stands in."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.data.images.broken import list_corrupt_images
from ltp_pipeline.data.prefetch import iter_batches
from ltp_pipeline.errors import InputError
from tests.support.photos import cut, everything, opened
from tests.support.samples import only


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.usefixtures("large")
def test_a_broken_image_met_in_training_is_named_once_and_another_of_its_class_stands_in(
    photos: Path, workers: int
) -> None:
    file = photos / "a" / "04.jpg"
    cut(file)
    data = opened(photos, num_workers=workers, validation_fraction=0.1)
    rows = data.train.rows
    (split,) = {s for s in (data.train, data.val, data.test) if 2 in s.rows}
    place = int(np.flatnonzero(split.rows == 2)[0])
    assert split is data.train
    with pytest.warns(UserWarning, match=r"04\.jpg cannot be decoded: .*another stands in for it"):
        x, *_ = map(only, iter_batches(split, len(split)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = only(split.read(np.array([place])))
    labels = data.train.labels
    assert len(list_corrupt_images(data)) == 1
    following = next(p for p in range(len(rows)) if rows[p] > 2 and labels[p] == labels[place])
    np.testing.assert_array_equal(x[place], x[following])
    np.testing.assert_array_equal(again[0], x[following])


@pytest.mark.usefixtures("large")
def test_which_image_stands_in_does_not_depend_on_what_was_read_first(photos: Path) -> None:
    for name in ("04", "06"):
        file = photos / "a" / f"{name}.jpg"
        cut(file)
    found = []
    for order in ([2, 3], [3, 2]):
        data = opened(photos)
        assert {2, 3} <= set(data.train.rows)
        with pytest.warns(UserWarning, match="another stands in for it"):
            got = {
                row: only(data.train.read(np.flatnonzero(data.train.rows == row))) for row in order
            }
        found.append(np.stack([got[2], got[3]]))
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.usefixtures("large")
def test_the_limit_holds_in_training(photos: Path) -> None:
    for file in list(photos.rglob("*.jpg"))[:15]:
        cut(file)
    data = opened(photos)
    with (
        warnings.catch_warnings(action="ignore"),
        pytest.raises(InputError, match="of 20 images cannot be used, 2 may be"),
    ):
        everything(data)
