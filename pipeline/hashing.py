"""Hashes of files, and the list of them that `sha256sum -c` takes."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ltp_pipeline.files import write_text


def sha256_of(path: Path) -> str:
    """Hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_together(paths: Sequence[Path]) -> str:
    """Hash of one file, or of the hashes of several: a model and the data beside it."""
    digests = [sha256_of(path) for path in paths]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def write_sums(path: Path, hashes: Mapping[str, str | None]) -> None:
    """Write the list: a hash and a name in each line."""
    write_text(path, "".join(f"{digest}  {name}\n" for name, digest in hashes.items()))
