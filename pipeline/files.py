"""Writing files so that a name never shows half a content."""

import errno
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ltp_pipeline.errors import InputError

AnyPath = str | os.PathLike[str]  # how a caller may give a path
COPIED = 1 << 22  # bytes at a time
DATA = ".data"  # ends the name of a second file, for weights that are not in the model file


def write_bytes(path: Path, content: bytes) -> None:
    """Write one content in one move."""
    write_pieces(path, [content])


def write_pieces(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write beside the final name, flush to disk, move into place; in pieces, because joining them copies a model."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}", "give a writable folder with --out") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        Path(scratch).chmod(0o644)
        Path(scratch).replace(path)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "free some space, then run the same again" if full else "give another name, or check its rights"
        raise InputError(f"cannot write {path}: {error.strerror}", remedy) from None
    finally:
        Path(scratch).unlink(missing_ok=True)


def copy(source: Path, target: Path) -> None:
    """Copy a file in one move; never a link, because onnx refuses external data that have several names."""
    with source.open("rb") as file:
        write_pieces(target, iter(lambda: file.read(COPIED), b""))


def write_text(path: Path, content: str) -> None:
    """Write UTF-8 text in one move."""
    try:
        encoded = content.encode()
    except UnicodeEncodeError:
        what = f"cannot write {path}: a name that it should hold is no UTF-8"
        raise InputError(what, "rename the files and folders that have such names") from None
    write_bytes(path, encoded)


def write_json(path: Path, content: Any) -> None:
    """Write readable JSON in one move."""
    write_text(path, json_text(content))


def json_text(content: Any) -> str:
    """Readable JSON; NaN and infinity are refused, because JSON has none."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def data_beside(path: Path) -> Path:
    """Where an ONNX file that we wrote keeps its weights, if it keeps them outside."""
    return path.with_name(path.name + DATA)
