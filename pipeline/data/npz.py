"""NumPy archives: x_train, y_train, and x_val, y_val, x_test, y_test where there are; or x and y only.

An archive without any y holds samples without labels.
"""

import math
import tokenize
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

from numpy.lib import format as npy

from ltp_pipeline.data.samples import Array, ArraySamples, Part, Stored, Wanted
from ltp_pipeline.errors import InputError
from ltp_pipeline.hashing import sha256_of

DEFLATE_LIMIT = 1032  # no deflated byte stands for more bytes than this
BROKEN = (
    *(zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError),  # the archive
    *(ValueError, TypeError, SyntaxError, tokenize.TokenError),  # the headers, which NumPy parses as Python literals
)
SAVE_AGAIN = "write the file again with numpy.savez_compressed"


def recognises(path: Path) -> bool:
    """Say whether the name is that of a NumPy archive."""
    return path.is_file() and path.suffix.lower() == ".npz"


def read(path: Path, _: Wanted) -> Stored:
    """Load the arrays in the dtype they have."""
    parts = {}
    try:
        with zipfile.ZipFile(path) as archive:
            present = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            for part, (x, y) in _keys(path, present).items():
                labels = None if y is None else _load(path, archive, y)
                samples = ArraySamples(_load(path, archive, x))
                parts[part] = Part(samples, labels, f"{x} of {path.name}", f"{y} of {path.name}")
    except BROKEN as error:
        raise InputError(f"{path} is not a readable npz file: {_line(error)}", SAVE_AGAIN) from None
    return Stored(parts, sha256_of(path))


def _keys(path: Path, present: Collection[str]) -> dict[str, tuple[str, str | None]]:
    """Names of samples and labels of each part."""
    if not any(key == "y" or key.startswith("y_") for key in present):
        bare = {part: (f"x_{part}", None) for part in ("train", "val", "test") if f"x_{part}" in present}
        if "train" in bare:
            return {**bare}
        if not bare and "x" in present:
            return {"all": ("x", None)}
    found: dict[str, tuple[str, str | None]] = {}
    for part in ("train", "val", "test"):
        pair = (f"x_{part}", f"y_{part}")
        missing = [key for key in pair if key not in present]
        if not missing:
            found[part] = pair
        elif len(missing) == 1:
            there = pair[0] if missing[0] == pair[1] else pair[1]
            raise InputError(f"{path} has {there} but no {missing[0]}", f"add {missing[0]}, or leave {there} out")
    if "train" in found:
        return found
    if not found and {"x", "y"} <= set(present):
        return {"all": ("x", "y")}
    raise InputError(
        f"{path} has no x_train and y_train; its arrays are: {', '.join(sorted(present)) or 'none'}",
        "name the arrays x_train, y_train, x_val, y_val, x_test, y_test (or x and y only; without labels, x_… alone)",
    )


def _load(path: Path, archive: zipfile.ZipFile, key: str) -> Array:
    """Read one array, after its header is found to promise what the archive holds and no more."""
    info = archive.getinfo(f"{key}.npy")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{key} of {path} is compressed in a way NumPy does not write", SAVE_AGAIN)
    with archive.open(info) as file:
        version = npy.read_magic(file)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = header(file)
        if dtype.hasobject:
            raise InputError(f"{key} of {path} holds Python objects, which are never loaded", "save it as numbers")
        promised, held = math.prod(shape) * dtype.itemsize, info.file_size - file.tell()
    on_disk = min(info.compress_size, path.stat().st_size)
    if promised != held or held > on_disk * DEFLATE_LIMIT:
        raise InputError(f"{key} of {path} promises {promised} bytes in its header but does not hold them", SAVE_AGAIN)
    if not shape:
        raise InputError(f"{key} of {path} is a single number", "its first axis must count the samples")
    with archive.open(info) as file:
        return npy.read_array(file, allow_pickle=False)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
