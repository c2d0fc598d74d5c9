"""A folder of NumPy arrays, NAME_train.npy and so on as in an archive: mapped into memory, not loaded."""

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


def can_read(path: Path) -> bool:
    """Say whether this is a folder with NumPy arrays in it."""
    return path.is_dir() and any(_files(path))


def read_dataset(path: Path, want: LoadOptions) -> RawDataset:
    """Map every array; what is read of it is read when a batch asks for it."""
    found = limits.inspect_files(_files(path))
    limits.check_size(path, found, want.max_bytes)
    files = {file.name.removesuffix(SUFFIX): file for file in _files(path)}
    for name in files:
        limits.check_name_encoding(name, f"an array of {path},")
    parts = group_columns(path, files, lambda key: _map(files[key]), want.inputs)
    made_of = hash_files([(file.name, str(file)) for file in files.values()])
    return RawDataset(parts, made_of, notes=found.notes)


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix == SUFFIX and not file.is_dir())


def _map(file: Path) -> Array:
    try:
        array: Array = npy.open_memmap(file, mode="r")
    except (
        ValueError,
        EOFError,
        SyntaxError,
        TypeError,
        OverflowError,
        tokenize.TokenError,
    ) as error:
        said = f"{file} is not a readable npy file: {summarize_error(error)}"
        raise InputError(said, "write the file again with numpy.save") from None
    if not array.ndim:
        raise InputError(f"{file} is a single number", "its first axis must count the samples")
    return array
