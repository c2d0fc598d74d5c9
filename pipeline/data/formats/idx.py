"""IDX files, as MNIST comes: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-…; gzipped or not."""

import gzip
import hashlib
import math
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ltp_pipeline.data import limits
from ltp_pipeline.data.dataset import (
    X_COLUMN,
    Y_COLUMN,
    ArraySamples,
    DataColumn,
    LoadOptions,
    Part,
    RawDataset,
)
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.hashing import sha256_file

DEFLATE_LIMIT = 1032  # no deflated byte stands for more bytes than this
FETCH_AGAIN = "fetch or write the file again"
_NAME = re.compile(
    r"(?:.*[-_.])?(?P<part>train|val|valid|validation|t10k|test)[-_.](?P<kind>images|labels)[-_.]idx\d[-_.]\w+?(?:\.gz)?"
)
_PARTS = {"t10k": "test", "valid": "val", "validation": "val"}
_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def can_read(path: Path) -> bool:
    """Say whether this is a folder with at least one file named as IDX files are."""
    return path.is_dir() and any(_NAME.fullmatch(f.name) for f in path.iterdir() if not f.is_dir())


def read_dataset(path: Path, want: LoadOptions) -> RawDataset:
    """Load images and labels of every part in the dtype they have."""
    files = _files(path)
    if ("train", "images") not in files:
        raise InputError(
            f"{path} has no training images",
            "add train-images-idx3-ubyte and train-labels-idx1-ubyte",
        )
    on_disk = limits.inspect_files(files.values())
    headers = {file: _header(file) for file in files.values()}
    limits.check_size(
        path, on_disk, want.max_bytes, unpacked=sum(h.bytes for h in headers.values())
    )
    parts: dict[str, Part] = {}
    digest = hashlib.sha256()
    for part in sorted({part for part, _ in files}):
        images, labels = files.get((part, "images")), files.get((part, "labels"))
        if images is None or labels is None:
            there, missing = (images, "labels") if images else (labels, "images")
            raise InputError(
                f"{path} has {there.name if there else part} but no {missing} for it",
                f"add the {missing}",
            )
        found = {X_COLUMN: images, Y_COLUMN: labels}
        parts[part] = {
            name: DataColumn(ArraySamples(_load(file, headers[file])), file.name)
            for name, file in found.items()
        }
        digest.update(f"{part} {sha256_file(images)} {sha256_file(labels)} ".encode())
    return RawDataset(parts, digest.hexdigest(), notes=on_disk.notes)


def _files(folder: Path) -> dict[tuple[str, str], Path]:
    found: dict[tuple[str, str], Path] = {}
    for file in sorted(folder.iterdir()):  # a file comes before its own .gz
        match = _NAME.fullmatch(file.name)
        if match is None or file.is_dir():
            continue
        key = (_PARTS.get(match["part"], match["part"]), match["kind"])
        if key not in found:
            found[key] = file
        elif file.name != f"{found[key].name}.gz":
            raise InputError(
                f"{folder} has two files of {key[0]} {key[1]}: {found[key].name} and {file.name}",
                "keep one data set per folder",
            )
    return found


class IdxHeader(NamedTuple):
    """What the first bytes of a file say of the others."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """How many others there are."""
        return math.prod(self.shape) * self.dtype.itemsize


def _header(path: Path) -> IdxHeader:
    with _opened(path) as file:
        header = _read_header(path, file)
    if header.bytes > path.stat().st_size * (DEFLATE_LIMIT if path.suffix == ".gz" else 1):
        raise _promises(path, header, "fewer")
    return header


def _read_header(path: Path, file: BufferedIOBase) -> IdxHeader:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _DTYPES or not 1 <= magic[3] <= 4:
        raise InputError(f"{path} does not start as an IDX file does", FETCH_AGAIN)
    sizes = file.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise InputError(f"{path} ends within its header", FETCH_AGAIN)
    shape = tuple(int(n) for n in np.frombuffer(sizes, ">u4"))
    if 0 in shape:
        raise InputError(
            f"{path} is empty: its header says {'×'.join(map(str, shape))}", FETCH_AGAIN
        )
    return IdxHeader(np.dtype(_DTYPES[magic[2]]), shape)


def _load(path: Path, header: IdxHeader) -> Array:
    """Read one file, and no more of it than its header promises."""
    with _opened(path) as file:
        _read_header(path, file)
        content = file.read(header.bytes + 1)
    if len(content) != header.bytes:
        raise _promises(path, header, "more" if len(content) > header.bytes else "fewer")
    return np.frombuffer(content, header.dtype).reshape(header.shape)


def _promises(path: Path, header: IdxHeader, held: str) -> InputError:
    return InputError(
        f"{path} promises {header.bytes} bytes in its header but holds {held}", FETCH_AGAIN
    )


@contextmanager
def _opened(path: Path) -> Iterator[BufferedIOBase]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a readable gzip file: {error}", FETCH_AGAIN) from None
