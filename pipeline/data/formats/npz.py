"""NumPy archives: NAME_train, NAME_val and NAME_test for each input, or NAME alone; x and y where there is one input.

Sequences of uneven length are one array of all their values, and NAME_train_offsets, where each begins and the last
ends. An archive without any y holds samples without labels.
"""

import math
import tokenize
import zipfile
import zlib
from pathlib import Path

from numpy.lib import format as npy

from ltp_pipeline.data import limits
from ltp_pipeline.data.columns import group_columns
from ltp_pipeline.data.dataset import LoadOptions, RawDataset
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.hashing import sha256_file

SUFFIX = ".npy"
BROKEN = (
    *(
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        OverflowError,
    ),  # the archive
    *(
        ValueError,
        TypeError,
        SyntaxError,
        tokenize.TokenError,
    ),  # the headers, which NumPy parses as Python literals
)
SAVE_AGAIN = "write the file again with numpy.savez_compressed"


def can_read(path: Path) -> bool:
    """Say whether the name is that of a NumPy archive."""
    return path.is_file() and path.suffix.lower() == ".npz"


def read_dataset(path: Path, want: LoadOptions) -> RawDataset:
    """Load the arrays in the dtype they have."""
    files = limits.inspect_files([path])
    try:
        with zipfile.ZipFile(path) as archive:
            members = {
                info.filename: info.file_size
                for info in archive.infolist()
                if info.filename.endswith(SUFFIX)
            }
            limits.check_member_names(archive.namelist(), path)
            limits.check_size(path, files, want.max_bytes, unpacked=sum(members.values()))
            present = [name.removesuffix(SUFFIX) for name in members]
            parts = group_columns(path, present, lambda key: _load(path, archive, key), want.inputs)
    except BROKEN as error:
        raise InputError(f"{path} is not a readable npz file: {_line(error)}", SAVE_AGAIN) from None
    return RawDataset(parts, sha256_file(path), notes=files.notes)


def _load(path: Path, archive: zipfile.ZipFile, key: str) -> Array:
    """Read one array, after its header is found to promise what the archive holds and no more."""
    info = archive.getinfo(key + SUFFIX)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{key} of {path} is compressed in a way NumPy does not write", SAVE_AGAIN)
    with archive.open(info) as file:
        version = npy.read_magic(file)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = header(file)
        if dtype.hasobject:
            raise InputError(
                f"{key} of {path} holds Python objects, which are never loaded",
                "save it as numbers",
            )
        promised, held = math.prod(shape) * dtype.itemsize, info.file_size - file.tell()
    if promised != held:
        raise InputError(
            f"{key} of {path} promises {promised} bytes in its header but does not hold them",
            SAVE_AGAIN,
        )
    if not shape:
        raise InputError(
            f"{key} of {path} is a single number", "its first axis must count the samples"
        )
    with archive.open(info) as file:
        return npy.read_array(file, allow_pickle=False)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
