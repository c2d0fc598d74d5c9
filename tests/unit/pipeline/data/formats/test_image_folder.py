"""Folders of class folders with images, and what each bad one is told."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ltp_pipeline.data.open import would_read_folder
from ltp_pipeline.data.prefetch import iter_batches
from ltp_pipeline.errors import InputError
from tests.support.class_folders import open_folder, picture, refused_folder, save
from tests.support.photos import opened
from tests.support.samples import only


@pytest.mark.usefixtures("either_way")
def test_class_folders_are_numbered_by_name(folder: Path) -> None:
    data = open_folder(folder, scale=1 / 255, mean=(0.5, 0.4, 0.3))
    assert data.class_names == ("cat", "dog")
    assert data.num_classes == 2
    assert (len(data.train), len(data.val), len(data.test)) == (8, 1, 1)
    everything = {}
    for split in (data.train, data.val, data.test):
        everything.update(
            zip(
                split.rows.tolist(),
                zip(only(split.read(np.arange(len(split)))), split.labels, strict=True),
                strict=True,
            )
        )
    for row in range(10):
        c, i = divmod(row, 5)
        pixels = picture(10 * c + i).transpose(2, 0, 1).astype(np.float32)
        expected = pixels * np.float32(1 / 255) - np.float32([0.5, 0.4, 0.3]).reshape(3, 1, 1)
        np.testing.assert_array_equal(everything[row][0], expected)
        assert everything[row][1] == c


@pytest.mark.parametrize("val", ["val", "valid", "validation"])
def test_split_folders_above_the_classes_are_followed(
    folder: Path, tmp_path: Path, val: str
) -> None:
    for name in ("train", val, "test"):
        (tmp_path / "data" / name).parent.mkdir(exist_ok=True)
        for c in ("cat", "dog"):
            for i, file in enumerate((folder / c).iterdir()):
                save(tmp_path / "data" / name / c / f"{i}.png", np.asarray(Image.open(file)))
    (tmp_path / "data" / "raw").mkdir()
    data = open_folder(tmp_path / "data")
    assert (len(data.train), len(data.val), len(data.test)) == (10, 10, 10)
    assert data.notes == ("folder raw stands beside train and is left out",)


def test_test_images_without_classes_are_left_out(folder: Path, tmp_path: Path) -> None:
    for name in ("train", "val"):
        shutil.copytree(folder, tmp_path / "imagenet" / name)
    save(tmp_path / "imagenet" / "test" / "0.png", picture(0))
    data = open_folder(tmp_path / "imagenet")
    assert (len(data.train), len(data.val), data.test.name) == (10, 10, "val")
    assert any("has no class folders, so no labels, and is left out" in note for note in data.notes)


def test_a_class_may_be_called_train(folder: Path) -> None:
    save(folder / "train" / "0.png", picture(0))
    save(folder / "train" / "1.png", picture(1))
    assert open_folder(folder).class_names == ("cat", "dog", "train")


def test_every_usual_format_and_nested_folders_are_read(tmp_path: Path) -> None:
    for i, ending in enumerate(("png", "JPG", "jpeg", "bmp", "gif", "webp", "tif", "ppm")):
        save(tmp_path / "a" / f"x.{ending}", picture(i))
        save(tmp_path / "b" / "images" / f"x.{ending}", picture(i))
    (tmp_path / "a" / "notes.txt").write_text("no image")
    (tmp_path / "a" / ".hidden.png").write_bytes(b"no image")
    data = open_folder(tmp_path)
    assert len(data.train) + len(data.val) + len(data.test) == 16


def test_a_class_without_images_is_refused(folder: Path) -> None:
    (folder / "empty").mkdir()
    assert "empty has no images" in refused_folder(folder).message


def test_a_class_that_training_lacks_is_refused(tmp_path: Path) -> None:
    for where in ("train/a", "train/b", "val/a", "val/c"):
        save(tmp_path / where / "0.png", picture(0))
    assert "has class c" in refused_folder(tmp_path).message


def test_a_class_that_validation_lacks_keeps_the_numbers(tmp_path: Path) -> None:
    for where in ("train/a", "train/b", "train/c", "val/c", "test/b"):
        save(tmp_path / where / "0.png", picture(0))
    data = open_folder(tmp_path)
    assert (data.val.labels.tolist(), data.test.labels.tolist()) == ([2], [1])


def test_split_folders_without_train_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "val" / "a" / "0.png", picture(0))
    assert "no folder train" in refused_folder(tmp_path).message


def test_val_and_valid_together_are_refused(tmp_path: Path) -> None:
    for where in ("train/a", "val/a", "valid/a"):
        save(tmp_path / where / "0.png", picture(0))
    assert "both val and valid" in refused_folder(tmp_path).message


def test_images_of_one_class_only_are_refused(folder: Path) -> None:
    error = refused_folder(folder / "..")
    assert "one class, pets" in error.message
    assert "without labels" in error.hint


def test_loose_images_beside_class_folders_are_refused(folder: Path) -> None:
    save(folder / "0.png", picture(0))
    assert "beside folders of images" in refused_folder(folder).message


def test_a_folder_train_of_images_alone_has_no_labels(tmp_path: Path) -> None:
    for i in range(8):
        save(tmp_path / "train" / f"{i}.png", picture(i))
    assert open_folder(tmp_path).num_classes is None


def test_a_split_without_classes_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "train" / "a" / "0.png", picture(0))
    save(tmp_path / "train" / "b" / "0.png", picture(0))
    save(tmp_path / "val" / "0.png", picture(0))
    assert "has no class folders" in refused_folder(tmp_path).message


def test_the_data_folder_may_be_a_link_but_a_class_may_not_lead_outside(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert open_folder(tmp_path / "link").num_classes == 2
    save(tmp_path / "elsewhere" / "0.png", picture(0))
    (folder / "outside").symlink_to(tmp_path / "elsewhere")
    assert "outside is a link to a place outside" in refused_folder(folder).message


def test_a_folder_made_among_classes_would_be_taken_for_one_but_not_beside_splits(
    folder: Path, tmp_path: Path
) -> None:
    assert would_read_folder(folder, folder / "model-ltp")
    assert not would_read_folder(folder, tmp_path / "model-ltp")
    for name in ("train", "val"):
        save(tmp_path / "data" / name / "cat" / "0.png", picture(0))
    assert not would_read_folder(tmp_path / "data", tmp_path / "data" / "model-ltp")
    assert would_read_folder(tmp_path / "data", tmp_path / "data" / "train" / "model-ltp")


def test_a_folder_beside_idx_files_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"")
    assert not would_read_folder(tmp_path, tmp_path / "model-ltp")


def test_a_flat_folder_has_no_labels(photos: Path) -> None:
    data = opened(photos / "a", validation_fraction=0.2)
    assert (data.train.labels, data.num_classes, data.class_names) == (None, None, None)
    assert len(data.train) == 6
    assert all(not batch.targets for batch in iter_batches(data.train, 2))


def test_split_folders_may_be_flat(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    (photos / "a").rename(tmp_path / "bare" / "train")
    (photos / "b").rename(tmp_path / "bare" / "val")
    data = opened(tmp_path / "bare")
    assert data.train.labels is None
    assert (len(data.train), len(data.val)) == (10, 10)


def test_links_to_images_are_followed_and_noted(folder: Path, tmp_path: Path) -> None:
    before = open_folder(folder)
    for name in ("0.png", "1.png"):
        shutil.move(folder / "cat" / name, tmp_path / name)
        (folder / "cat" / name).symlink_to(tmp_path / name)
    after = open_folder(folder)
    assert after.fingerprint == before.fingerprint
    assert set(after.notes) - set(before.notes) == {
        "2 files of the data are links and were followed"
    }


@pytest.mark.parametrize("flat", [False, True])
def test_a_pipe_among_images_is_told_without_waiting_for_it(folder: Path, flat: bool) -> None:
    where = folder / "cat"
    os.mkfifo(where / "x.jpg")
    assert "x.jpg is a pipe, no file" in refused_folder(where if flat else folder).message


def test_a_link_to_a_device_among_images_is_told(folder: Path) -> None:
    (folder / "cat" / "x.jpg").symlink_to("/dev/zero")
    assert "x.jpg is a device, no file" in refused_folder(folder).message


def test_a_link_in_a_circle_is_told(folder: Path) -> None:
    (folder / "cat" / "x.jpg").symlink_to("x.jpg")
    assert "x.jpg cannot be read" in refused_folder(folder).message
    (folder / "x").symlink_to("x")
    with pytest.raises(InputError, match="cannot read data"):
        would_read_folder(folder, folder / "out")


def test_a_link_to_a_folder_below_a_class_is_told(folder: Path) -> None:
    (folder / "cat" / "more").symlink_to(folder / "dog")
    assert "more is a link to a folder" in refused_folder(folder).message


def test_a_class_whose_name_is_no_utf8_is_told(folder: Path) -> None:
    (folder / "cat").rename(os.fsdecode(os.fsencode(folder) + b"/\xff"))
    assert refused_folder(folder).message.endswith(", ? has a name that is no UTF-8")


def test_an_image_whose_name_is_no_utf8_is_read_and_shown_where_it_must_be(folder: Path) -> None:
    (folder / "cat" / "0.png").rename(os.fsdecode(os.fsencode(folder) + b"/cat/\xff.png"))
    assert len(open_folder(folder).train) == 8
    for i in range(20):
        save(folder / "dog" / f"more{i}.png", picture(i))
    os.truncate(os.fsencode(folder) + b"/cat/\xff.png", 40)
    (note,) = [n for n in open_folder(folder, max_corrupt_images=1).notes if "left out" in n]
    assert "cat/?.png" in note
