"""Folders of .npy files: arrays are mapped, and other files are rejected."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.support.archives import get_open_error, make_images, make_labels, open_archive


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", make_images(30, 4, 4))
    np.save(tmp_path / "y.npy", make_labels(30))
    return tmp_path


def test_read_dataset_arrays_are_mapped(folder: Path) -> None:
    assert isinstance(open_archive(folder).train.inputs["image"].samples.array, np.memmap)


def test_read_dataset_pipe_raises(folder: Path) -> None:
    (folder / "x.npy").unlink()
    os.mkfifo(folder / "x.npy")
    assert "x.npy" in get_open_error(folder).message


def test_read_dataset_archive_named_like_an_array_raises(folder: Path) -> None:
    with (folder / "x.npy").open("wb") as file:
        np.savez(file, x=make_images(30, 4, 4))
    error = get_open_error(folder)
    assert str(folder / "x.npy") in error.message
    assert "numpy.save" in error.hint


def test_read_dataset_file_with_a_hole_raises(folder: Path) -> None:
    np.lib.format.open_memmap(folder / "x.npy", "w+", np.uint8, (2**36, 4, 4))
    assert "1,099,511,62" in get_open_error(folder).message


def test_read_dataset_name_that_is_not_utf8_raises(folder: Path) -> None:
    np.save(os.fsdecode(os.fsencode(folder) + b"/\xff.npy"), make_labels(30))
    assert "UTF-8" in get_open_error(folder).message
