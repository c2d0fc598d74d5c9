"""NumPy archives (.npz): arrays NAME_train, NAME_val and NAME_test for each input, or NAME alone.

With one input, NAME may be x; y holds the labels. Sequences of uneven length are one array of all
their values, and an array NAME_train_offsets. An archive without y holds samples without labels.
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
from ltp_pipeline.errors import InputError, summarize_error
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.hashing import sha256_file

SUFFIX = ".npy"
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
)
HEADER_ERRORS = (ValueError, TypeError, SyntaxError, tokenize.TokenError)  # of a Python literal
SAVE_HINT = "write the file again with numpy.savez_compressed"


def can_read(path: Path) -> bool:
    """Return whether a path is a NumPy archive by its name."""
    return path.is_file() and path.suffix.lower() == ".npz"


def read_dataset(path: Path, options: LoadOptions) -> RawDataset:
    """Load all arrays of an archive in their types."""
    sizes = limits.inspect_files([path])
    try:
        with zipfile.ZipFile(path) as archive:
            members = {}
            for member in archive.infolist():
                if member.filename.endswith(SUFFIX):
                    members[member.filename.removesuffix(SUFFIX)] = member
            limits.check_member_names(archive.namelist(), path)
            unpacked = sum(member.file_size for member in members.values())
            limits.check_size(path, sizes, options.settings.max_bytes, unpacked)
            parts = group_columns(
                path, members, lambda key: _load_array(path, archive, members[key]), options.inputs
            )
    except (*ARCHIVE_ERRORS, *HEADER_ERRORS) as error:
        raise InputError(
            f"{path} is not a readable npz file: {summarize_error(error)}", SAVE_HINT
        ) from None
    return RawDataset(parts, sha256_file(path), notes=sizes.notes)


def _load_array(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    """Load an array if its header declares exactly the bytes that the archive holds."""
    name = f"{member.filename.removesuffix(SUFFIX)} of {path}"
    if member.compress_type not in COMPRESSIONS:
        raise InputError(f"{name} is compressed by a method that NumPy does not write", SAVE_HINT)
    with archive.open(member) as file:
        version = npy.read_magic(file)
        read_header = npy.read_array_header_2_0
        if version == (1, 0):
            read_header = npy.read_array_header_1_0
        shape, _, dtype = read_header(file)
        num_bytes = member.file_size - file.tell()
    if dtype.hasobject:
        raise InputError(
            f"{name} holds Python objects, which are never loaded", "save it as numbers"
        )
    declared_bytes = math.prod(shape) * dtype.itemsize
    if declared_bytes != num_bytes:
        raise InputError(
            f"{name} must hold {declared_bytes} bytes by its header, but holds {num_bytes}",
            SAVE_HINT,
        )
    if not shape:
        raise InputError(
            f"{name} is a single number", "store an array whose first axis counts the samples"
        )
    with archive.open(member) as file:
        return npy.read_array(file, allow_pickle=False)
