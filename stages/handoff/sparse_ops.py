"""Collect what a handoff with fast files has: the library of sparse operators and its sources."""

from __future__ import annotations

import io
import platform
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.sparse_ops import library
from ltp_pipeline.system.hashing import sha256_file

if TYPE_CHECKING:
    from ltp_pipeline.results.schema import FileResult, Report

FOLDER = "ltp_kernels"  # of the sources, in the archive
ARCHIVE = f"{FOLDER}.zip"
FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # a fixed date, so that the same sources are the same bytes


@dataclass(frozen=True)
class SparseOpsFiles:
    """The library and the sources to run fast files with.

    Attributes:
        library: The library that the files were measured with; None if it is not on this machine.
        sources: Content of the archive with the sources.
    """

    library: Path | None
    sources: bytes
    archive_name = ARCHIVE

    @property
    def library_name(self) -> str:
        """Name of the library's file."""
        if self.library is None:
            return library.FILE_NAME
        return self.library.name

    @property
    def library_sha256(self) -> str | None:
        """SHA-256 of the library; None if it is not on this machine."""
        if self.library is None:
            return None
        return sha256_file(self.library)

    @property
    def platform(self) -> str:
        """System and processor that the library is built for."""
        return f"{platform.system()} on {platform.machine()}"

    @property
    def build_command(self) -> str:
        """Command that builds the library in the folder in which the archive was unpacked."""
        compiler, *arguments = library.make_build_command(Path(library.FILE_NAME), "c++")
        *flags, last = [word for word in arguments if not word.endswith(".cpp")]
        return " ".join([compiler, *flags, f"{FOLDER}/*.cpp", last])


def collect_sparse_ops(report: Report) -> SparseOpsFiles | None:
    """Return what the fast files of a report need; None if it has no such files."""
    digests = set()
    for file in find_fast_files(report):
        if file.sparse_kernels:
            digests.add(file.sparse_kernels.library_sha256)
    if not digests:
        return None
    try:
        path = library.sparse_ops_library()
    except InputError:
        return SparseOpsFiles(None, _archive_sources())
    # Another build may use other instructions or compute other sums.
    is_measured_one = digests == {sha256_file(path)}
    return SparseOpsFiles(path if is_measured_one else None, _archive_sources())


def find_fast_files(report: Report) -> list[FileResult]:
    """Return the files that use sparse operators."""
    return [file for file in report.pruned.files if file.sparse_kernels is not None]


def _archive_sources() -> bytes:
    """Return a zip archive of the sources."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in sorted(library.SOURCE.iterdir()):
            if path.suffix in (".h", ".cpp"):
                entry = zipfile.ZipInfo(f"{FOLDER}/{path.name}", FIRST_DATE)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return content.getvalue()
