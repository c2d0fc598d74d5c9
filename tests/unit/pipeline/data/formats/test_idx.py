"""Folders of IDX files, and files that are rejected."""

import gzip
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.data.open import open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings
from tests.support.samples import only_input

GREY = TensorInfo("image", "FLOAT", ("N", 1, 4, 4))
CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
TRAIN = np.arange(20 * 16, dtype=np.uint8).reshape(20, 4, 4)
TEST = TRAIN[:5] + 7


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(
        f">BBBB{array.ndim}I", 0, 0, CODES[array.dtype.str[1:]], array.ndim, *array.shape
    )
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def labels(count: int) -> np.ndarray:
    return (np.arange(count) % 5).astype(np.uint8)


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(TRAIN))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(labels(20)))
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(TEST))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(labels(5)))
    return tmp_path


def opened(path: Path) -> DatasetSplits:
    return open_data(DataSettings(path=path), [GREY], 0)


def refusal(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        opened(path)
    return caught.value


def zipped(folder: Path) -> None:
    for file in list(folder.iterdir()):
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()


def renamed(change: Callable[[str], str]) -> Callable[[Path], None]:
    def rename(folder: Path) -> None:
        for file in list(folder.iterdir()):
            file.rename(folder / change(file.name))

    return rename


@pytest.mark.parametrize(
    "arrange",
    [
        renamed(str),
        zipped,
        renamed(lambda name: name.replace("t10k", "test")),
        renamed(lambda name: name.replace("-idx", ".idx")),
        renamed(lambda name: f"emnist-letters-{name}"),
    ],
    ids=["plain", "gz", "test", "dots", "prefix"],
)
def test_read_dataset_usual_names_are_found(mnist: Path, arrange: Callable[[Path], None]) -> None:
    arrange(mnist)
    data = opened(mnist)
    assert (len(data.train), len(data.val), len(data.test), data.num_classes) == (18, 2, 5, 5)
    np.testing.assert_array_equal(only_input(data.test.read(np.arange(5))), TEST[:, None])
    np.testing.assert_array_equal(data.test.labels, labels(5))
    assert data.test.name == "test"


def test_read_dataset_plain_and_gzipped_file_are_one(mnist: Path) -> None:
    file = mnist / "train-images-idx3-ubyte"
    Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes()))
    assert len(opened(mnist).train) == 18


def test_read_dataset_two_data_sets_in_a_folder_raise(mnist: Path) -> None:
    (mnist / "letters-train-images-idx3-ubyte").write_bytes(idx(TRAIN))
    assert "letters-train-images-idx3-ubyte" in refusal(mnist).message


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "f4", "f8"])
def test_read_dataset_every_number_type_is_read(mnist: Path, dtype: str) -> None:
    for name in ("train", "t10k"):
        (mnist / f"{name}-images-idx3-ubyte").write_bytes(idx((TEST % 100).astype(dtype)))
        (mnist / f"{name}-labels-idx1-ubyte").write_bytes(idx(labels(5)))
    np.testing.assert_array_equal(
        only_input(opened(mnist).test.read(np.arange(5))), TEST[:, None] % 100
    )


def test_read_dataset_fingerprint_follows_the_content(mnist: Path) -> None:
    first = opened(mnist).fingerprint
    (mnist / "t10k-labels-idx1-ubyte").write_bytes(idx(labels(5)[::-1].copy()))
    assert opened(mnist).fingerprint != first


def test_read_dataset_images_without_labels_raise(mnist: Path) -> None:
    (mnist / "t10k-labels-idx1-ubyte").unlink()
    assert "t10k-images-idx3-ubyte" in refusal(mnist).message


def test_read_dataset_test_without_train_raises(mnist: Path) -> None:
    (mnist / "train-images-idx3-ubyte").unlink()
    assert "train-images-idx3-ubyte" in refusal(mnist).hint


def test_read_dataset_different_counts_raise(mnist: Path) -> None:
    (mnist / "t10k-labels-idx1-ubyte").write_bytes(idx(labels(4)))
    parts = r"t10k-images-idx3-ubyte .*\b5\b.* t10k-labels-idx1-ubyte .*\b4\b"
    assert re.search(parts, refusal(mnist).message)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "start like an IDX file"),
        (b"\xff\xd8\xff\xe0 jpeg", "start like an IDX file"),
        (b"\0\0\x07\x03" + bytes(12), "start like an IDX file"),
        (b"\0\0\x08\x63" + bytes(500), "has 99"),
        (b"\0\0\x08\x03\0\0", "ends within its header"),
        (idx(TRAIN)[:-1], "320 bytes by its header, but holds fewer"),
        (idx(TRAIN) + b"x", "320 bytes by its header, but holds more"),
        (b"\0\0\x08\x03" + b"\xff" * 12 + bytes(16), "holds fewer"),
        (
            b"\0\0\x08\x04" + b"\xff" * 12 + bytes(4),
            "is empty",
        ),
    ],
    ids=[
        "empty",
        "jpeg",
        "type",
        "rank",
        "header",
        "truncated",
        "longer",
        "huge",
        "huge and empty",
    ],
)
@pytest.mark.parametrize("compress", [False, True], ids=["plain", "gz"])
def test_read_dataset_wrong_header_raises(
    mnist: Path, content: bytes, text: str, compress: bool
) -> None:
    file = mnist / "train-images-idx3-ubyte"
    file.unlink()
    if compress:
        file = Path(f"{file}.gz")
    file.write_bytes(gzip.compress(content) if compress else content)
    error = refusal(mnist)
    assert text in error.message
    assert file.name in error.message


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-9], lambda b: b[:30] + b"\xff\xff" + b[32:], lambda b: b[4:]]
)
def test_read_dataset_corrupt_gzip_raises(mnist: Path, damage: Callable[[bytes], bytes]) -> None:
    file = mnist / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(damage(gzip.compress(idx(TEST))))
    (mnist / "t10k-images-idx3-ubyte").unlink()
    assert file.name in refusal(mnist).message


def test_read_dataset_gzip_that_unpacks_to_far_more_raises(mnist: Path) -> None:
    (mnist / "train-images-idx3-ubyte").unlink()
    file = mnist / "train-images-idx3-ubyte.gz"
    piece = gzip.compress(bytes(2**20))  # many of which are one file of zeros
    file.write_bytes(gzip.compress(struct.pack(">BBBB3I", 0, 0, 8, 3, 2**20, 16, 16)) + piece * 300)
    error = refusal(mnist)
    assert "268,435,5" in error.message
    assert "max_bytes" in error.hint
