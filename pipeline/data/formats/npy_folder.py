"""Folders of NumPy arrays (.npy), named as in a .npz archive. They are mapped into memory."""

import tokenize
from pathlib import Path

from numpy.lib import format as npy

from ltp_pipeline.data import limits
from ltp_pipeline.data.columns import group_columns
from ltp_pipeline.data.dataset import LoadOptions, RawDataset
from ltp_pipeline.data.images.collection import hash_files
from ltp_pipeline.errors import InputError, summarize_error
from ltp_pipeline.system.arrays import Array

SUFFIX = ".npy"
HEADER_ERRORS = (ValueError, EOFError, SyntaxError, TypeError, OverflowError, tokenize.TokenError)


def can_read(path: Path) -> bool:
    """Return whether a path is a folder with NumPy arrays."""
    return path.is_dir() and any(_list_files(path))


def read_dataset(path: Path, options: LoadOptions) -> RawDataset:
    """Map all arrays of a folder; batches read what they need."""
    files = {file.name.removesuffix(SUFFIX): file for file in _list_files(path)}
    sizes = limits.inspect_files(files.values())
    limits.check_size(path, sizes, options.settings.max_bytes)
    for name in files:
        limits.check_name_encoding(name, f"an array of {path},")
    parts = group_columns(path, files, lambda key: _map_array(files[key]), options.inputs)
    fingerprint = hash_files([(file.name, str(file)) for file in files.values()])
    return RawDataset(parts, fingerprint, notes=sizes.notes)


def _list_files(folder: Path) -> list[Path]:
    """Return the arrays in a folder."""
    return sorted(file for file in folder.iterdir() if file.suffix == SUFFIX and not file.is_dir())


def _map_array(file: Path) -> Array:
    """Map an array into memory without pickled objects."""
    try:
        array: Array = npy.open_memmap(file, mode="r")
    except HEADER_ERRORS as error:
        raise InputError(
            f"{file} is not a readable npy file: {summarize_error(error)}",
            "write the file again with numpy.save",
        ) from None
    if not array.ndim:
        raise InputError(
            f"{file} is a single number", "store an array whose first axis counts the samples"
        )
    return array
