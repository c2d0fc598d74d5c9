"""The library of sparse operators is delivered only if the files were measured with it."""

import io
import zipfile
from pathlib import Path

import pytest

from ltp_pipeline.exporters.sparse_ops import library
from ltp_pipeline.results.schema import Report
from ltp_pipeline.stages.handoff import sparse_ops
from ltp_pipeline.stages.handoff.page import render_page
from ltp_pipeline.system.hashing import sha256_file
from tests.support.kernels import raise_missing
from tests.support.sample_report import report_of, sample


def with_fast(digest: str) -> Report:
    """A report whose last file is a fast one, measured with a library of this hash."""
    content, _ = sample()
    how = {
        "instruction_set": "avx2",
        "library_sha256": digest,
        "converted_layers": ["head.fc.weight"],
    }
    content["pruned"]["files"][-1] |= {
        "graph": "fast",
        "path": "model.fast.packed.onnx",
        "sparse_kernels": how,
    }
    return report_of(content)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / library.FILE_NAME
    path.write_bytes(b"kernels")
    monkeypatch.setattr(library, "sparse_ops_library", lambda: path)
    return path


def test_collect_sparse_ops_returns_the_library_of_the_measurement(built: Path) -> None:
    files = sparse_ops.collect_sparse_ops(with_fast(sha256_file(built)))
    assert files is not None
    assert files.library == built
    page = render_page(with_fast(sha256_file(built)), sparse_ops=files)
    assert sha256_file(built) in page


def test_collect_sparse_ops_leaves_out_another_library(built: Path) -> None:
    files = sparse_ops.collect_sparse_ops(with_fast("0" * 64))
    assert files is not None
    assert files.library is None


def test_render_page_missing_library_has_the_command_that_builds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(library, "sparse_ops_library", raise_missing)
    report = with_fast("0" * 64)
    page = render_page(report, sparse_ops=sparse_ops.collect_sparse_ops(report))
    assert "The library is not in this folder" in page
    assert f"unzip {sparse_ops.ARCHIVE} && c++ -O3" in page
    assert "ltp_kernels/*.cpp -pthread" in page
    assert "faster only in `model.fast.packed.onnx`" in page


def test_collect_sparse_ops_without_fast_files_returns_none() -> None:
    report = report_of(sample()[0])
    assert sparse_ops.collect_sparse_ops(report) is None
    assert "## Sparse operators" not in render_page(report)


def test_collect_sparse_ops_archive_is_complete_and_reproducible(built: Path) -> None:
    first, second = (sparse_ops.collect_sparse_ops(with_fast(sha256_file(built))) for _ in range(2))
    assert first == second
    assert first is not None
    with zipfile.ZipFile(io.BytesIO(first.sources)) as archive:
        names = {Path(entry.filename).name for entry in archive.infolist()}
        assert names == {path.name for path in library.SOURCE.iterdir()}
        assert all(entry.external_attr >> 16 == 0o644 for entry in archive.infolist())
