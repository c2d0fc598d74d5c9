"""A folder of NumPy arrays, NAME_train.npy and so on as in an archive: mapped into memory, not loaded."""

from pathlib import Path

import numpy as np

from ltp_pipeline.data.columns import gathered
from ltp_pipeline.data.images import fingerprint
from ltp_pipeline.data.samples import Array, Stored, Wanted
from ltp_pipeline.errors import InputError

SUFFIX = ".npy"


def recognises(path: Path) -> bool:
    """Say whether this is a folder with NumPy arrays in it."""
    return path.is_dir() and any(_files(path))


def read(path: Path, want: Wanted) -> Stored:
    """Map every array; what is read of it is read when a batch asks for it."""
    files = {file.name.removesuffix(SUFFIX): file for file in _files(path)}
    parts = gathered(path, files, lambda key: _map(files[key]), want.inputs)
    return Stored(parts, fingerprint([(file.name, str(file)) for file in files.values()]))


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix == SUFFIX and file.is_file())


def _map(file: Path) -> Array:
    try:
        array: Array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, SyntaxError, TypeError) as error:
        line = (str(error).splitlines() or [""])[0]
        raise InputError(f"{file} is not a readable npy file: {line}", "write the file again with numpy.save") from None
    if not array.ndim:
        raise InputError(f"{file} is a single number", "its first axis must count the samples")
    return array
