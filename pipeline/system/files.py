"""Reading small files whole, and writing files so that a name never shows half a content."""

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

AnyPath = str | os.PathLike[str]  # how a caller may give a path
COPY_CHUNK = 1 << 22  # bytes at a time
DATA_SUFFIX = ".data"  # ends the name of a second file, for weights that are not in the model file
SCRATCH_SUFFIX = "????????"  # shell-style: ends the name of a file that is being written, which begins with a dot
MAX_TEXT_BYTES = 64 << 20  # bytes of a report or a manifest


def read_text(path: AnyPath, hint: str, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """The text of a small file; `remedy` is what to do where it cannot be read."""
    content = read_bytes(path, hint, max_bytes)
    try:
        return content.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"cannot read {path}: not UTF-8, {error.reason} at byte {error.start}", hint
        ) from None


def read_bytes(path: AnyPath, hint: str, max_bytes: int) -> bytes:
    """The content of a regular file of at most so many bytes.

    It is looked at before it is opened, because opening a pipe would wait for ever, and a device has no end.
    """
    try:
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode):
            raise InputError(
                f"cannot read {path}: {_describe_kind(found.st_mode)}, no regular file", hint
            )
        if found.st_size > max_bytes:
            what = (
                f"cannot read {path}: {found.st_size:,} bytes, and at most {max_bytes:,} are read"
            )
            raise InputError(what, hint)
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
    """Refuse to write where something is that is no regular file: it would be replaced, also a device."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}", "give another name, or check its rights"
        ) from None
    except ValueError as error:  # a name with a zero byte
        raise InputError(f"cannot write {str(path)!r}: {error}", "give another name") from None
    if not stat.S_ISREG(mode):
        raise InputError(
            f"cannot write {path}: it is {_describe_kind(mode)}", "give the name of a file"
        )


def write_bytes(path: Path, content: bytes) -> None:
    """Write one content in one move."""
    write_pieces(path, [content])


def write_pieces(
    path: Path, pieces: Iterable[bytes | memoryview], before_move: Callable[[], None] = lambda: None
) -> None:
    """Write beside the final name, flush to disk, move into place; in pieces, because joining them copies a model."""
    check_replaceable(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}", "give a writable folder with --out"
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
        space, rights = (
            "free some space, then run the same again",
            "give another name, or check its rights",
        )
        raise InputError(
            f"cannot write {path}: {error.strerror}", space if is_disk_full(error) else rights
        ) from None
    finally:
        Path(scratch).unlink(missing_ok=True)


def write_hashed(
    path: Path, pieces: Iterable[bytes | memoryview], before_move: Callable[[str], None]
) -> str:
    """The same, hashed on the way; `ready` is told the SHA-256 before the file is moved into place."""
    digest = hashlib.sha256()

    def hashed() -> Iterator[bytes | memoryview]:
        for piece in pieces:
            digest.update(piece)
            yield piece

    write_pieces(path, hashed(), lambda: before_move(digest.hexdigest()))
    return digest.hexdigest()


def copy_file(source: Path, target: Path) -> None:
    """Copy a file in one move; never a link, because onnx refuses external data that have several names."""
    with source.open("rb") as file:
        write_pieces(target, iter(lambda: file.read(COPY_CHUNK), b""))


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
    """Readable JSON; NaN and infinity are refused, because JSON has none, and a zero has no sign."""
    return (
        json.dumps(_drop_zero_signs(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    )


def _drop_zero_signs(value: Any) -> Any:
    """The same without the sign of -0.0, which strict_json.py refuses."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {key: _drop_zero_signs(one) for key, one in value.items()}
    return [_drop_zero_signs(one) for one in value] if isinstance(value, list | tuple) else value


def external_data_path(path: Path) -> Path:
    """Where an ONNX file that we wrote keeps its weights, if it keeps them outside."""
    return path.with_name(path.name + DATA_SUFFIX)


def check_output_path(out: AnyPath, sources: Iterable[Path]) -> None:
    """Refuse a file to write that would replace, with the data beside it, one of those that are read, or no file."""
    check_replaceable(Path(out))  # refuses an empty name, too, which is the folder's
    check_replaceable(external_data_path(Path(out)))
    written = [part for part in (Path(out), external_data_path(Path(out))) if part.exists()]
    for source in sources:
        if source.exists() and any(part.samefile(source) for part in written):
            raise InputError(
                f"writing {out} would replace {source}, which is read",
                "give another file with --out",
            )
