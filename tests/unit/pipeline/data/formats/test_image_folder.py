"""Folders of images: classes, splits, and folders that are rejected."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ltp_pipeline.data.loader import iter_batches
from ltp_pipeline.data.open import would_read_folder
from ltp_pipeline.errors import InputError
from tests.support.class_folders import get_folder_error, make_picture, open_folder, save_picture
from tests.support.photos import open_photos
from tests.support.samples import only_input


@pytest.mark.usefixtures("either_way")
def test_read_dataset_classes_are_numbered_by_name(folder: Path) -> None:
    data = open_folder(folder, scale=1 / 255, mean=(0.5, 0.4, 0.3))
    assert data.class_names == ("cat", "dog")
    assert data.num_classes == 2
    assert (len(data.train), len(data.val), len(data.test)) == (8, 1, 1)
    everything = {}
    for split in (data.train, data.val, data.test):
        everything.update(
            zip(
                split.rows.tolist(),
                zip(only_input(split.read(np.arange(len(split)))), split.labels, strict=True),
                strict=True,
            )
        )
    for row in range(10):
        c, i = divmod(row, 5)
        pixels = make_picture(10 * c + i).transpose(2, 0, 1).astype(np.float32)
        expected = pixels * np.float32(1 / 255) - np.float32([0.5, 0.4, 0.3]).reshape(3, 1, 1)
        np.testing.assert_array_equal(everything[row][0], expected)
        assert everything[row][1] == c


@pytest.mark.parametrize("val", ["val", "valid", "validation"])
def test_read_dataset_split_folders_are_followed(folder: Path, tmp_path: Path, val: str) -> None:
    for name in ("train", val, "test"):
        (tmp_path / "data" / name).parent.mkdir(exist_ok=True)
        for c in ("cat", "dog"):
            for i, file in enumerate((folder / c).iterdir()):
                save_picture(
                    tmp_path / "data" / name / c / f"{i}.png", np.asarray(Image.open(file))
                )
    (tmp_path / "data" / "raw").mkdir()
    data = open_folder(tmp_path / "data")
    assert (len(data.train), len(data.val), len(data.test)) == (10, 10, 10)
    (note,) = data.notes
    assert "raw" in note


def test_read_dataset_test_images_without_classes_are_not_used(
    folder: Path, tmp_path: Path
) -> None:
    for name in ("train", "val"):
        shutil.copytree(folder, tmp_path / "imagenet" / name)
    save_picture(tmp_path / "imagenet" / "test" / "0.png", make_picture(0))
    data = open_folder(tmp_path / "imagenet")
    assert (len(data.train), len(data.val), data.test.name) == (10, 10, "val")
    assert any(str(tmp_path / "imagenet" / "test") in note for note in data.notes)


def test_read_dataset_class_may_be_called_train(folder: Path) -> None:
    save_picture(folder / "train" / "0.png", make_picture(0))
    save_picture(folder / "train" / "1.png", make_picture(1))
    assert open_folder(folder).class_names == ("cat", "dog", "train")


def test_read_dataset_usual_formats_and_nested_folders_are_read(tmp_path: Path) -> None:
    for i, ending in enumerate(("png", "JPG", "jpeg", "bmp", "gif", "webp", "tif", "ppm")):
        save_picture(tmp_path / "a" / f"x.{ending}", make_picture(i))
        save_picture(tmp_path / "b" / "images" / f"x.{ending}", make_picture(i))
    (tmp_path / "a" / "notes.txt").write_text("no image")
    (tmp_path / "a" / ".hidden.png").write_bytes(b"no image")
    data = open_folder(tmp_path)
    assert len(data.train) + len(data.val) + len(data.test) == 16


def test_read_dataset_class_without_images_raises(folder: Path) -> None:
    (folder / "empty").mkdir()
    assert str(folder / "empty") in get_folder_error(folder).message


def test_read_dataset_class_that_training_lacks_raises(tmp_path: Path) -> None:
    for where in ("train/a", "train/b", "val/a", "val/c"):
        save_picture(tmp_path / where / "0.png", make_picture(0))
    assert "class c" in get_folder_error(tmp_path).message


def test_read_dataset_class_that_validation_lacks_keeps_numbers(tmp_path: Path) -> None:
    for where in ("train/a", "train/b", "train/c", "val/c", "test/b"):
        save_picture(tmp_path / where / "0.png", make_picture(0))
    data = open_folder(tmp_path)
    assert (data.val.labels.tolist(), data.test.labels.tolist()) == ([2], [1])


def test_read_dataset_split_folders_without_train_raise(tmp_path: Path) -> None:
    save_picture(tmp_path / "val" / "a" / "0.png", make_picture(0))
    assert "train" in get_folder_error(tmp_path).hint


def test_read_dataset_val_and_valid_raise(tmp_path: Path) -> None:
    for where in ("train/a", "val/a", "valid/a"):
        save_picture(tmp_path / where / "0.png", make_picture(0))
    assert re.search(r"\bval\b.*\bvalid\b", get_folder_error(tmp_path).message)


def test_read_dataset_one_class_raises(folder: Path) -> None:
    error = get_folder_error(folder / "..")
    assert error.message.endswith("pets")
    assert "labels" in error.hint


def test_read_dataset_images_next_to_class_folders_raise(folder: Path) -> None:
    save_picture(folder / "0.png", make_picture(0))
    assert str(folder / "0.png") in get_folder_error(folder).message


def test_read_dataset_folder_train_of_images_has_no_labels(tmp_path: Path) -> None:
    for i in range(8):
        save_picture(tmp_path / "train" / f"{i}.png", make_picture(i))
    assert open_folder(tmp_path).num_classes is None


def test_read_dataset_split_without_classes_raises(tmp_path: Path) -> None:
    save_picture(tmp_path / "train" / "a" / "0.png", make_picture(0))
    save_picture(tmp_path / "train" / "b" / "0.png", make_picture(0))
    save_picture(tmp_path / "val" / "0.png", make_picture(0))
    assert str(tmp_path / "val") in get_folder_error(tmp_path).message


def test_read_dataset_class_folder_that_leads_outside_raises(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert open_folder(tmp_path / "link").num_classes == 2
    save_picture(tmp_path / "elsewhere" / "0.png", make_picture(0))
    (folder / "outside").symlink_to(tmp_path / "elsewhere")
    assert str(folder / "outside") in get_folder_error(folder).message


def test_would_read_folder_among_classes_but_not_next_to_splits(
    folder: Path, tmp_path: Path
) -> None:
    assert would_read_folder(folder, folder / "model-ltp")
    assert not would_read_folder(folder, tmp_path / "model-ltp")
    for name in ("train", "val"):
        save_picture(tmp_path / "data" / name / "cat" / "0.png", make_picture(0))
    assert not would_read_folder(tmp_path / "data", tmp_path / "data" / "model-ltp")
    assert would_read_folder(tmp_path / "data", tmp_path / "data" / "train" / "model-ltp")


def test_would_read_folder_next_to_idx_files_is_false(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"")
    assert not would_read_folder(tmp_path, tmp_path / "model-ltp")


def test_read_dataset_flat_folder_has_no_labels(photos: Path) -> None:
    data = open_photos(photos / "a", validation_fraction=0.2)
    assert (data.train.labels, data.num_classes, data.class_names) == (None, None, None)
    assert len(data.train) == 6
    assert all(not batch.targets for batch in iter_batches(data.train, 2))


def test_read_dataset_split_folders_may_be_flat(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    (photos / "a").rename(tmp_path / "bare" / "train")
    (photos / "b").rename(tmp_path / "bare" / "val")
    data = open_photos(tmp_path / "bare")
    assert data.train.labels is None
    assert (len(data.train), len(data.val)) == (10, 10)


def test_read_dataset_links_are_followed_and_noted(folder: Path, tmp_path: Path) -> None:
    before = open_folder(folder)
    for name in ("0.png", "1.png"):
        shutil.move(folder / "cat" / name, tmp_path / name)
        (folder / "cat" / name).symlink_to(tmp_path / name)
    after = open_folder(folder)
    assert after.fingerprint == before.fingerprint
    (note,) = set(after.notes) - set(before.notes)
    assert note.startswith("2 files")


@pytest.mark.parametrize("flat", [False, True])
def test_read_dataset_pipe_raises_without_waiting(folder: Path, flat: bool) -> None:
    where = folder / "cat"
    os.mkfifo(where / "x.jpg")
    assert "/x.jpg " in get_folder_error(where if flat else folder).message


def test_read_dataset_link_to_a_device_raises(folder: Path) -> None:
    (folder / "cat" / "x.jpg").symlink_to("/dev/zero")
    assert "/x.jpg " in get_folder_error(folder).message


def test_read_dataset_circular_link_raises(folder: Path) -> None:
    (folder / "cat" / "x.jpg").symlink_to("x.jpg")
    assert "x.jpg" in get_folder_error(folder).message
    (folder / "x").symlink_to("x")
    with pytest.raises(InputError) as caught:
        would_read_folder(folder, folder / "out")
    assert str(folder) in caught.value.message


def test_read_dataset_link_to_a_folder_raises(folder: Path) -> None:
    (folder / "cat" / "more").symlink_to(folder / "dog")
    assert str(folder / "cat" / "more") in get_folder_error(folder).message


def test_read_dataset_class_name_that_is_not_utf8_raises(folder: Path) -> None:
    (folder / "cat").rename(os.fsdecode(os.fsencode(folder) + b"/\xff"))
    assert "UTF-8" in get_folder_error(folder).message


def test_read_dataset_image_name_that_is_not_utf8_is_read(folder: Path) -> None:
    (folder / "cat" / "0.png").rename(os.fsdecode(os.fsencode(folder) + b"/cat/\xff.png"))
    assert len(open_folder(folder).train) == 8
    for i in range(20):
        save_picture(folder / "dog" / f"more{i}.png", make_picture(i))
    os.truncate(os.fsencode(folder) + b"/cat/\xff.png", 40)
    (note,) = [n for n in open_folder(folder, max_corrupt_images=1).notes if "skipped" in n]
    assert "cat/?.png" in note
