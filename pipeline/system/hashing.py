"""Hashes of files, and the list of them that `sha256sum -c` takes."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ltp_pipeline.errors import InputError
from ltp_pipeline.system.files import read_text, write_text
from ltp_pipeline.system.text import quote_name

LINE = re.compile(r"(?P<digest>[0-9a-f]{64}) [ *](?P<name>.+)")


def sha256_file(path: Path) -> str:
    """Hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_files(paths: Sequence[Path]) -> str:
    """Hash of one file, or of the hashes of several: a model and the data beside it."""
    digests = [sha256_file(path) for path in paths]
    return (
        digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    )


def write_checksums(path: Path, hashes: Mapping[str, str | None]) -> None:
    """Write the list: a hash and a name in each line."""
    write_text(path, "".join(f"{digest}  {name}\n" for name, digest in hashes.items()))


def read_checksums(path: Path, hint: str) -> dict[str, str]:
    """The same list, read: hashes by name."""
    hashes: dict[str, str] = {}
    for line in read_text(path, hint).splitlines():
        found = LINE.fullmatch(line)
        if found is None or found["name"] in hashes:
            raise InputError(f"{path} is no list of hashes: {quote_name(line)}", hint)
        hashes[found["name"]] = found["digest"]
    return hashes
