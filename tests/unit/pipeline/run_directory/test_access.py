"""Who may write into a run directory."""

import errno
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.run_directory.access import check_writable, lock_directory
from ltp_pipeline.run_directory.run_directory import RunDirectory


def test_lock_held_by_another_process_raises(tmp_path: Path):
    with (
        RunDirectory(tmp_path / "run").lock(),
        pytest.raises(InputError, match="process"),
        RunDirectory(tmp_path / "run").lock(),
    ):
        pass
    with RunDirectory(tmp_path / "run").lock():
        pass


@pytest.mark.parametrize(("number", "is_error"), [(errno.ENOLCK, False), (errno.EACCES, True)])
def test_lock_unsupported_is_ignored_and_denied_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_error: bool
):
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("filelock.FileLock.acquire", fail)
    expected = pytest.raises(InputError, match=os.strerror(number)) if is_error else nullcontext()
    with expected, RunDirectory(tmp_path / "run").lock():
        pass


def test_check_writable_file_raises(tmp_path: Path):
    (tmp_path / "model.onnx").touch()
    with pytest.raises(InputError, match=r"model\.onnx.*\bfile\b"):
        check_writable(tmp_path / "model.onnx")


def test_check_writable_too_long_name_raises(tmp_path: Path):
    with pytest.raises(InputError, match="x" * 300) as caught:
        check_writable(tmp_path / ("x" * 300))
    assert "writable" in caught.value.hint


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_lock_that_is_not_a_regular_file_raises(tmp_path: Path, kind: str):
    lock = tmp_path / ".lock"
    if kind == "folder":
        lock.mkdir()
    elif kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.symlink_to(tmp_path / "elsewhere")
    with (
        pytest.raises(InputError, match=r"\.lock") as caught,
        lock_directory(tmp_path),
    ):
        pass
    assert "--out" in caught.value.hint
    assert not (tmp_path / "elsewhere").exists()


def test_lock_of_removed_folder_is_released(tmp_path: Path):
    with lock_directory(tmp_path / "run"):
        (tmp_path / "run").rename(tmp_path / "moved")


def test_lock_removes_new_empty_folder_only(tmp_path: Path):
    (tmp_path / "older").mkdir()
    for name in ("new", "older"):
        with lock_directory(tmp_path / name):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["older"]


def test_lock_removes_leftovers_and_no_other_files(tmp_path: Path):
    (tmp_path / "state").mkdir()
    left = [
        tmp_path / ".manifest.json.a1b2c3d_",
        tmp_path / "state" / ".learn.safetensors.a1b2c3d4",
    ]
    others = [
        tmp_path / ".manifest.json.old",
        tmp_path / ".gitignore",
        tmp_path / "state" / ".mine.safetensors.a1b2c3d4",
    ]
    for path in (*left, *others, tmp_path / "manifest.json"):
        path.touch()
    with lock_directory(tmp_path):
        pass
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in others)
