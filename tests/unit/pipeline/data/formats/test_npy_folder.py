"""Folders of .npy files: mapped, and nothing else is taken for an array."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.support.archives import images, labels, opened, refusal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", images(30, 4, 4))
    np.save(tmp_path / "y.npy", labels(30))
    return tmp_path


def test_arrays_are_mapped(folder: Path) -> None:
    assert isinstance(opened(folder).train.inputs["image"].samples.array, np.memmap)


def test_a_pipe_among_the_arrays_is_told(folder: Path) -> None:
    (folder / "x.npy").unlink()
    os.mkfifo(folder / "x.npy")
    assert "x.npy is a pipe" in refusal(folder).message


def test_an_archive_that_is_called_an_array_is_told(folder: Path) -> None:
    with (folder / "x.npy").open("wb") as file:
        np.savez(file, x=images(30, 4, 4))
    assert "not a readable npy file" in refusal(folder).message


def test_a_file_of_holes_is_told(folder: Path) -> None:
    np.lib.format.open_memmap(folder / "x.npy", "w+", np.uint8, (2**36, 4, 4))
    assert "says that it holds 1,099,511,62" in refusal(folder).message


def test_a_name_that_is_no_utf8_is_told(folder: Path) -> None:
    np.save(os.fsdecode(os.fsencode(folder) + b"/\xff.npy"), labels(30))
    assert "no UTF-8" in refusal(folder).message
