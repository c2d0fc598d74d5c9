"""IDX files, the format of MNIST: train-images-idx3-ubyte and the like, also gzipped."""

import gzip
import hashlib
import math
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
from ltp_pipeline.data.formats.image_folder import find_split
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.hashing import sha256_file

MAX_DEFLATION = 1032  # bytes that one deflated byte stands for at most
FETCH_HINT = "download or write the file again"
MAX_AXES = 4
MNIST_TEST = "t10k"
COLUMNS = {"images": X_COLUMN, "labels": Y_COLUMN}
_NAME = re.compile(
    r"(?:.*[-_.])?(?P<part>train|val|valid|validation|t10k|test)[-_.]"
    r"(?P<kind>images|labels)[-_.]idx\d[-_.]\w+?(?:\.gz)?"
)
_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


class IdxFile(NamedTuple):
    """An open IDX file whose header has been read."""

    path: Path
    content: BufferedIOBase  # at the first byte after the header
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Number of bytes after the header."""
        return math.prod(self.shape) * self.dtype.itemsize


def can_read(path: Path) -> bool:
    """Return whether a path is a folder with a file that has the name of an IDX file."""
    return path.is_dir() and any(_NAME.fullmatch(f.name) for f in path.iterdir() if not f.is_dir())


def read_dataset(path: Path, options: LoadOptions) -> RawDataset:
    """Load the images and labels of all parts in their types."""
    files = _find_files(path)
    if ("train", "images") not in files:
        raise InputError(
            f"{path} has no training images",
            "add train-images-idx3-ubyte and train-labels-idx1-ubyte",
        )
    for part, kind in list(files):
        missing = "labels" if kind == "images" else "images"
        if (part, missing) not in files:
            raise InputError(
                f"{path} has {files[part, kind].name}, but no {missing} for it",
                f"add the {missing}",
            )
    sizes = limits.inspect_files(files.values())
    parts: dict[str, Part] = {}
    digest = hashlib.sha256()
    with ExitStack() as stack:
        opened = {key: _open_file(file, stack) for key, file in files.items()}
        unpacked = sum(file.num_bytes for file in opened.values())
        limits.check_size(path, sizes, options.settings.max_bytes, unpacked)
        for part in sorted({part for part, _ in files}):
            columns = {}
            digest.update(f"{part} ".encode())
            for kind, column in COLUMNS.items():
                file = files[part, kind]
                samples = ArraySamples(_load_array(opened[part, kind]))
                columns[column] = DataColumn(samples, file.name)
                digest.update(f"{sha256_file(file)} ".encode())
            parts[part] = columns
    return RawDataset(parts, digest.hexdigest(), notes=sizes.notes)


def _find_files(folder: Path) -> dict[tuple[str, str], Path]:
    """Return the files of a folder by split and kind (images or labels)."""
    files: dict[tuple[str, str], Path] = {}
    for file in sorted(folder.iterdir()):  # a file comes before its own .gz
        match = _NAME.fullmatch(file.name)
        if match is None or file.is_dir():
            continue
        split = "test" if match["part"] == MNIST_TEST else find_split(match["part"])
        key = (split or "", match["kind"])
        if key not in files:
            files[key] = file
        elif file.name != f"{files[key].name}.gz":
            raise InputError(
                f"{folder} has two files of {key[0]} {key[1]}: {files[key].name} and {file.name}",
                "keep one data set in a folder",
            )
    return files


def _open_file(path: Path, stack: ExitStack) -> IdxFile:
    """Open a file until the stack is closed, and read its header."""
    if path.suffix == ".gz":
        content: BufferedIOBase = stack.enter_context(gzip.GzipFile(path))
    else:
        content = stack.enter_context(path.open("rb"))
    with _explain_gzip_errors(path):
        magic = content.read(4)
        sizes = content.read(4 * magic[3]) if len(magic) == 4 else b""
    if magic[:2] != b"\0\0" or len(magic) < 4 or magic[2] not in _DTYPES:
        raise InputError(f"{path} does not start like an IDX file", FETCH_HINT)
    if not 1 <= magic[3] <= MAX_AXES:
        raise InputError(f"{path} must have 1 to {MAX_AXES} axes, but has {magic[3]}", FETCH_HINT)
    if len(sizes) < 4 * magic[3]:
        raise InputError(f"{path} ends within its header", FETCH_HINT)
    shape = tuple(np.frombuffer(sizes, ">u4").tolist())
    if 0 in shape:
        raise InputError(f"{path} is empty: its header declares the shape {shape}", FETCH_HINT)
    file = IdxFile(path, content, np.dtype(_DTYPES[magic[2]]), shape)
    max_bytes = path.stat().st_size
    if path.suffix == ".gz":
        max_bytes *= MAX_DEFLATION
    if file.num_bytes > max_bytes:
        raise _make_size_error(file, "fewer")
    return file


def _load_array(file: IdxFile) -> Array:
    """Read the values of a file, at most as many bytes as its header declares and one more."""
    with _explain_gzip_errors(file.path):
        values = file.content.read(file.num_bytes + 1)
    if len(values) != file.num_bytes:
        amount = "fewer"
        if len(values) > file.num_bytes:
            amount = "more"
        raise _make_size_error(file, amount)
    return np.frombuffer(values, file.dtype).reshape(file.shape)


@contextmanager
def _explain_gzip_errors(path: Path) -> Iterator[None]:
    """Raise InputError for errors of a gzipped file."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a readable gzip file: {error}", FETCH_HINT) from None


def _make_size_error(file: IdxFile, amount: str) -> InputError:
    """Return the error for a file that holds more or fewer bytes than its header declares."""
    return InputError(
        f"{file.path} must hold {file.num_bytes} bytes by its header, but holds {amount}",
        FETCH_HINT,
    )
