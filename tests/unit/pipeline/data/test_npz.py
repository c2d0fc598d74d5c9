"""npz files: what is read, how it is divided, and what each bad file is told."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.archives import images, labels, opened, refusal
from tests.support.samples import only


def test_three_splits_are_read_as_they_are(archive: Path) -> None:
    x = images(12, 4, 4)
    np.savez(
        archive,
        x_train=x[:6],
        y_train=[0, 1, 2, 0, 1, 2],
        x_val=x[6:9],
        y_val=[2, 1, 0],
        x_test=x[9:],
        y_test=[4, 4, 4],
    )
    data = opened(archive)
    assert (data.train.name, data.val.name, data.test.name) == ("train", "val", "test")
    assert (len(data.train), len(data.val), len(data.test), data.classes, data.notes) == (6, 3, 3, 5, ())
    np.testing.assert_array_equal(only(data.test.read(np.array([2, 0]))), x[[11, 9], None].astype(np.float32))
    assert data.val.labels.dtype == np.int64
    np.testing.assert_array_equal(data.val.labels, [2, 1, 0])


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff\xe0 a jpeg", b"PK\x03\x04 cut short"])
def test_a_file_that_is_no_archive_is_refused(archive: Path, content: bytes) -> None:
    archive.write_bytes(content)
    assert "not a readable npz file" in refusal(archive).what


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_flipped_bit_in_an_array_is_noticed(archive: Path, save: Any) -> None:
    save(archive, x_train=images(10, 4, 4), y_train=labels(10))
    content = bytearray(archive.read_bytes())
    content[200] ^= 0x10
    archive.write_bytes(content)
    assert "x_train" in refusal(archive).what or "npz" in refusal(archive).what


def test_a_truncated_archive_is_refused(archive: Path) -> None:
    np.savez(archive, x_train=images(10, 4, 4), y_train=labels(10))
    archive.write_bytes(archive.read_bytes()[:-40])
    assert "not a readable npz file" in refusal(archive).what


def write_members(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def test_a_header_that_promises_too_much_allocates_nothing(archive: Path) -> None:
    lying = npy(images(10, 4, 4)).replace(b"(10, 4, 4), }      ", b"(9999999999, 4, 4),}"[:19])
    write_members(archive, x_train=lying, y_train=npy(labels(10)))
    assert "promises" in refusal(archive).what


def test_a_header_that_is_no_literal_is_refused(archive: Path) -> None:
    write_members(archive, x_train=npy(images(10, 4, 4)).replace(b"(10,", b"((((", 1), y_train=npy(labels(10)))
    assert "not a readable npz file" in refusal(archive).what


def test_pickled_objects_are_never_loaded(archive: Path) -> None:
    write_members(archive, x_train=npy(np.array([{}, []], dtype=object)), y_train=npy(labels(2)))
    assert "Python objects" in refusal(archive).what


def test_missing_keys_are_told_with_those_present(archive: Path) -> None:
    np.savez(archive, images=images(10, 4, 4), targets=labels(10))
    error = refusal(archive)
    assert "images, targets" in error.what
    assert "x_train" in error.remedy


def test_a_split_without_labels_beside_others_with_them_is_refused(archive: Path) -> None:
    np.savez(archive, x_train=images(10, 4, 4), x_test=images(10, 4, 4), y_test=labels(10))
    assert "has x_train but no y_train" in refusal(archive).what


def test_val_without_train_is_refused(archive: Path) -> None:
    np.savez(archive, x_val=images(10, 4, 4), y_val=labels(10))
    assert "no x_train" in refusal(archive).what
