"""What is handed over with fast files: the library only where it is the one by which they were measured."""

import io
import zipfile
from pathlib import Path

import pytest

from ltp_pipeline.exporters.sparse_ops import library
from ltp_pipeline.results.schema import Report
from ltp_pipeline.stages.handoff import sparse_ops, text
from ltp_pipeline.system.hashing import sha256_file
from tests.support.kernels import missing
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


def test_the_library_goes_along_where_it_is_the_one_that_was_measured_with(built: Path) -> None:
    handed = sparse_ops.find(with_fast(sha256_file(built)))
    assert handed is not None
    assert handed.path == built
    other = sparse_ops.find(with_fast("0" * 64))
    assert other is not None
    assert other.path is None


def test_where_it_is_not_at_hand_the_page_says_so_and_how_to_build_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(library, "sparse_ops_library", missing)
    report = with_fast("0" * 64)
    page = text.render(report, handed=sparse_ops.find(report))
    assert "The library is not in this folder" in page
    assert f"unzip {sparse_ops.SOURCES} && c++ -O3" in page
    assert "ltp_kernels/*.cpp -pthread" in page
    assert "They make the model faster only in `model.fast.packed.onnx`" in page


def test_a_report_without_fast_files_hands_over_nothing_of_it() -> None:
    report = report_of(sample()[0])
    assert sparse_ops.find(report) is None
    assert "## Sparse kernels" not in text.render(report)


def test_the_sources_are_whole_readable_and_the_same_bytes_every_time(built: Path) -> None:
    first, second = (sparse_ops.find(with_fast(sha256_file(built))) for _ in range(2))
    assert first == second
    assert first is not None
    with zipfile.ZipFile(io.BytesIO(first.sources)) as archive:
        assert {Path(e.filename).name for e in archive.infolist()} == {
            p.name for p in library.SOURCE.iterdir()
        }
        assert all(entry.external_attr >> 16 == 0o644 for entry in archive.infolist())
