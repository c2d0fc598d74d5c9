"""Read small files as a whole, and write files so that a name never shows partial content."""

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.system.scratch import is_disk_full

AnyPath = str | os.PathLike[str]  # a path argument of a public function
COPY_CHUNK = 1 << 22  # bytes copied at a time
DATA_SUFFIX = ".data"  # suffix of the file that holds the external weights of a model
SCRATCH_SUFFIX = "????????"  # shell-style pattern: suffix of a file that is being written
MAX_TEXT_BYTES = 64 << 20  # size limit of a report or a manifest


def read_text(path: AnyPath, hint: str, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a small file, with Unix line endings.

    Args:
        path: The file.
        hint: What the user can do if it cannot be read.
        max_bytes: Larger files are rejected.

    Raises:
        InputError: The file cannot be read or is not UTF-8.
    """
    content = read_bytes(path, hint, max_bytes)
    try:
        return content.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"cannot read {path}: not UTF-8, {error.reason} at byte {error.start}", hint
        ) from None


def read_bytes(path: AnyPath, hint: str, max_bytes: int) -> bytes:
    """Return the content of a regular file of at most `max_bytes` bytes.

    The file is examined before it is opened, because opening a pipe would wait forever, and a
    device has no end.

    Raises:
        InputError: The file cannot be read, is not a regular file, or is too large.
    """
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            kind = _describe_kind(status.st_mode)
            raise InputError(f"cannot read {path}: {kind}, not a regular file", hint)
        if status.st_size > max_bytes:
            size = f"{status.st_size:,} bytes, and at most {max_bytes:,} are read"
            raise InputError(f"cannot read {path}: {size}", hint)
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint) from None
    except ValueError as error:  # a name with a zero byte
        raise InputError(f"cannot read {str(path)!r}: {error}", hint) from None
    except MemoryError:
        raise InputError(f"cannot read {path}: it does not fit into memory", hint) from None


def _describe_kind(mode: int) -> str:
    return "a folder" if stat.S_ISDIR(mode) else "a pipe, socket or device"


def check_replaceable(path: Path) -> None:
    """Raise InputError if writing a path would replace something that is not a regular file."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}", "pass another name, or check its permissions"
        ) from None
    except ValueError as error:  # a name with a zero byte
        raise InputError(f"cannot write {str(path)!r}: {error}", "pass another name") from None
    if not stat.S_ISREG(mode):
        raise InputError(
            f"cannot write {path}: it is {_describe_kind(mode)}", "pass the name of a file"
        )


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file in one move."""
    write_pieces(path, [content])


def write_pieces(
    path: Path, pieces: Iterable[bytes | memoryview], before_move: Callable[[], None] = lambda: None
) -> None:
    """Write a file beside its final name, flush it to disk and move it into place.

    Args:
        path: The file.
        pieces: Its content. Joining the pieces would copy a whole model.
        before_move: Called when the content is on disk.

    Raises:
        InputError: The file cannot be written.
    """
    check_replaceable(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}", "pass a writable folder with --out"
        ) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        Path(scratch).chmod(0o644)
        before_move()
        Path(scratch).replace(path)
    except OSError as error:
        hint = "choose another name, or check its permissions"
        if is_disk_full(error):
            hint = "free some space, then run the same command again"
        raise InputError(f"cannot write {path}: {error.strerror}", hint) from None
    finally:
        Path(scratch).unlink(missing_ok=True)


def write_hashed(
    path: Path, pieces: Iterable[bytes | memoryview], before_move: Callable[[str], None]
) -> str:
    """Write a file in one move and return its SHA-256, see `write_pieces`.

    `before_move` is called with the SHA-256.
    """
    digest = hashlib.sha256()

    def hashed() -> Iterator[bytes | memoryview]:
        for piece in pieces:
            digest.update(piece)
            yield piece

    write_pieces(path, hashed(), lambda: before_move(digest.hexdigest()))
    return digest.hexdigest()


def copy_file(source: Path, target: Path) -> None:
    """Copy a file in one move.

    The copy is never a link, because onnx rejects external data with several names.
    """
    with source.open("rb") as file:
        write_pieces(target, iter(lambda: file.read(COPY_CHUNK), b""))


def write_text(path: Path, content: str) -> None:
    """Write UTF-8 text in one move."""
    try:
        encoded = content.encode()
    except UnicodeEncodeError:
        message = f"cannot write {path}: a name that it should hold is not UTF-8"
        raise InputError(message, "rename the files and folders that have such names") from None
    write_bytes(path, encoded)


def write_json(path: Path, content: Any) -> None:
    """Write readable JSON in one move."""
    write_text(path, json_text(content))


def json_text(content: Any) -> str:
    """Return readable JSON.

    NaN and infinity are rejected, because JSON does not have them. A zero gets no sign.
    """
    plain = _drop_zero_signs(content)
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _drop_zero_signs(value: Any) -> Any:
    """Return a copy in which -0.0 is 0.0, because system/json.py rejects -0.0."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {key: _drop_zero_signs(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_drop_zero_signs(item) for item in value]
    return value


def external_data_path(path: Path) -> Path:
    """Return the path of the external weights of an ONNX file that this program writes."""
    return path.with_name(path.name + DATA_SUFFIX)


def check_output_path(out: AnyPath, sources: Iterable[Path]) -> None:
    """Raise InputError if writing a file would replace one that is read.

    Args:
        out: The file to write, with external data beside it.
        sources: Files that are read.
    """
    sources = [source for source in sources if source.exists()]
    check_replaceable(Path(out))  # also rejects an empty name, which is that of the folder
    for part in (Path(out), external_data_path(Path(out))):
        check_replaceable(part)
        for source in sources:
            if part.exists() and part.samefile(source):
                message = f"writing {out} would replace {source}, which is read"
                raise InputError(message, "pass another file with --out")
