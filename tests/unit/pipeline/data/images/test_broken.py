"""Corrupt images that are met while reading are replaced by others of their class."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.data.images.broken import CorruptImageLog, ImageReplacements
from ltp_pipeline.data.images.collection import list_corrupt_images
from ltp_pipeline.data.images.decode import ImageProblem, ImageSource
from ltp_pipeline.data.loader import iter_batches
from ltp_pipeline.errors import InputError
from tests.support.photos import make_jpeg, open_photos, read_everything, truncate_file, write_file
from tests.support.samples import only_input


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.usefixtures("large")
def test_corrupt_image_is_named_once_and_replaced_by_one_of_its_class(
    photos: Path, workers: int
) -> None:
    file = photos / "a" / "04.jpg"
    truncate_file(file)
    data = open_photos(photos, num_workers=workers, validation_fraction=0.1)
    rows = data.train.rows
    (split,) = {s for s in (data.train, data.val, data.test) if 2 in s.rows}
    place = int(np.flatnonzero(split.rows == 2)[0])
    assert split is data.train
    with pytest.warns(UserWarning, match=r"/04\.jpg "):
        x, *_ = map(only_input, iter_batches(split, len(split)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = only_input(split.read(np.array([place])))
    labels = data.train.labels
    assert len(list_corrupt_images(data)) == 1
    following = next(p for p in range(len(rows)) if rows[p] > 2 and labels[p] == labels[place])
    np.testing.assert_array_equal(x[place], x[following])
    np.testing.assert_array_equal(again[0], x[following])


@pytest.mark.usefixtures("large")
def test_corrupt_image_replacement_does_not_depend_on_the_order(photos: Path) -> None:
    for name in ("04", "06"):
        file = photos / "a" / f"{name}.jpg"
        truncate_file(file)
    images = []
    for order in ([2, 3], [3, 2]):
        data = open_photos(photos)
        assert {2, 3} <= set(data.train.rows)
        with pytest.warns(UserWarning, match=r"/0[46]\.jpg "):
            got = {
                row: only_input(data.train.read(np.flatnonzero(data.train.rows == row)))
                for row in order
            }
        images.append(np.stack([got[2], got[3]]))
    np.testing.assert_array_equal(images[0], images[1])


@pytest.mark.usefixtures("large")
def test_corrupt_images_beyond_the_limit_raise(photos: Path) -> None:
    for file in list(photos.rglob("*.jpg"))[:15]:
        truncate_file(file)
    data = open_photos(photos)
    with warnings.catch_warnings(action="ignore"), pytest.raises(InputError) as caught:
        read_everything(data)
    assert re.search(r"\b20 images\b.*\b2\b", caught.value.message)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.usefixtures("large")
def test_corrupt_class_raises(photos: Path, workers: int) -> None:
    for i in range(20, 60):
        write_file(photos / "a" / f"{i}.jpg", make_jpeg(i))
    for i in (1, 3, 5):
        truncate_file(write_file(photos / "c" / f"{i}.jpg", make_jpeg(i)))
    data = open_photos(photos, num_workers=workers, validation_fraction=0.01)
    with warnings.catch_warnings(action="ignore"), pytest.raises(InputError) as caught:
        read_everything(data)
    assert "class" in caught.value.hint


def test_iter_candidates_are_the_next_images_of_the_class() -> None:
    rows, labels = np.array([7, 1, 5, 3, 0]), np.array([0, 1, 0, 1, 1, 1, 0, 0])
    replacements = ImageReplacements(rows, labels)
    assert list(replacements.iter_candidates(3)) == [3, 5, 1]
    assert list(ImageReplacements(rows, None).iter_candidates(3)) == [3, 5, 7, 0, 1]


def test_corrupt_image_log_limit_is_a_tenth_of_all_images() -> None:
    images = [
        ImageProblem(ImageSource(f"{i}.jpg"), "cannot be decoded", "repair it") for i in range(4)
    ]
    log = CorruptImageLog(39, 100)
    assert len(log.add(images[:3], "it is left out")) == 3
    assert log.add(images[:3], "it is left out") == []
    with pytest.raises(InputError) as caught:
        log.add(images[3:], "it is left out")
    assert "4 of 39" in caught.value.message
    unreadable = ImageProblem(images[0].source, "cannot be read", "check the disk", False)
    with pytest.raises(InputError) as caught:
        CorruptImageLog(39, 100).add([unreadable], "")
    assert "0.jpg" in caught.value.message
