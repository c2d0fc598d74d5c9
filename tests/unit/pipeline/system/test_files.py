"""Writing in one move, hashed on the way; what is written as text is UTF-8, or nothing is written."""

import hashlib
import os
import re
from pathlib import Path

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.system.files import check_output_path, read_bytes, write_hashed, write_json


def test_write_json_name_that_is_not_utf8_raises(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="UTF-8"):
        write_json(tmp_path / "a.json", {"model": "\udcff.onnx"})
    assert not list(tmp_path.iterdir())


def test_write_hashed_reports_the_hash_before_replacing(tmp_path: Path):
    calls: list[tuple[str, bool]] = []
    path = tmp_path / "file"
    digest = write_hashed(
        path, [b"one", memoryview(b"two")], lambda found: calls.append((found, path.exists()))
    )
    assert digest == hashlib.sha256(b"onetwo").hexdigest()
    assert calls == [(digest, False)]
    assert path.read_bytes() == b"onetwo"


def test_write_hashed_failed_report_leaves_no_file(tmp_path: Path):
    def fail(_: str) -> None:
        raise ValueError("the manifest could not be written")

    with pytest.raises(ValueError, match="manifest"):
        write_hashed(tmp_path / "file", [b"one"], fail)
    assert not any(tmp_path.iterdir())


def test_read_bytes_of_device_or_folder_raises_unopened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in (
        (Path("/dev/zero"), "device"),
        (tmp_path / "pipe", "pipe"),
        (tmp_path, "a folder"),
    ):
        with pytest.raises(InputError, match=kind):
            read_bytes(path, "give another", 10)


def test_read_bytes_above_the_limit_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_bytes(tmp_path / "file", "give another", 10) == b"0123456789"
    with pytest.raises(InputError, match=r"\b10 bytes\b.*\b9\b"):
        read_bytes(tmp_path / "file", "give another", 9)


@pytest.mark.parametrize("name", ["nothing", "zero\0byte"])
def test_read_bytes_missing_file_raises(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=name.split("\0")[0]):
        read_bytes(tmp_path / name, "give another", 10)


@pytest.mark.parametrize("out", ["model.onnx", "link.onnx", "weights.onnx.data", "weights.onnx"])
def test_check_output_path_that_is_a_source_raises(out: str, tmp_path: Path):
    """Neither the model nor its weights, which lie beside the file that `weights.onnx` names."""
    sources = [tmp_path / name for name in ("model.onnx", "weights.onnx.data")]
    for source in sources:
        source.touch()
    (tmp_path / "link.onnx").symlink_to("model.onnx")
    with pytest.raises(InputError, match="|".join(re.escape(f"{source}, ") for source in sources)):
        check_output_path(tmp_path / out, sources)


def test_check_output_path_other_file_is_accepted(tmp_path: Path):
    for name in ("model.onnx", "old.onnx"):
        (tmp_path / name).touch()
    check_output_path(tmp_path / "old.onnx", [tmp_path / "model.onnx", tmp_path / "missing"])


def test_check_output_path_empty_name_raises():
    with pytest.raises(InputError):
        check_output_path("", [])


@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
def test_check_output_path_that_is_not_a_file_raises(kind: str, tmp_path: Path):
    out, other = tmp_path / "out.onnx", tmp_path / "other"
    os.mkfifo(other) if kind != "folder" else out.mkdir()
    if kind != "folder":
        out.symlink_to(other) if kind == "link" else other.rename(out)
    for write in (lambda: check_output_path(out, []), lambda: write_json(out, {})):
        with pytest.raises(InputError, match=r"out\.onnx.*\b(pipe|folder)\b"):
            write()
    assert not out.is_file()
