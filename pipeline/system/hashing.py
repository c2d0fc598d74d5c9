"""SHA-256 of files, and lists of checksums that `sha256sum -c` reads."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ltp_pipeline.errors import InputError
from ltp_pipeline.system.files import read_text, write_text
from ltp_pipeline.system.text import quote_name

LINE = re.compile(r"(?P<digest>[0-9a-f]{64}) [ *](?P<name>.+)")


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_files(paths: Sequence[Path]) -> str:
    """Return the hash of one file, or of the hashes of several.

    A model with external data has several files.
    """
    digests = [sha256_file(path) for path in paths]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def write_checksums(path: Path, hashes: Mapping[str, str | None]) -> None:
    """Write a list of checksums: a hash and a name in each line."""
    write_text(path, "".join(f"{digest}  {name}\n" for name, digest in hashes.items()))


def read_checksums(path: Path, hint: str) -> dict[str, str]:
    """Return the hashes of a list of checksums, by name.

    Raises:
        InputError: The file cannot be read, or is not such a list.
    """
    hashes: dict[str, str] = {}
    for line in read_text(path, hint).splitlines():
        match = LINE.fullmatch(line)
        if match is None or match["name"] in hashes:
            raise InputError(f"{path} is not a list of checksums: {quote_name(line)}", hint)
        hashes[match["name"]] = match["digest"]
    return hashes
