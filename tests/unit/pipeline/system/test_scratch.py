"""Temporary folders, and disks that are full."""

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from ltp_pipeline.errors import InputError, UnsupportedModel
from ltp_pipeline.system.scratch import temporary_folder


def test_temporary_folder_is_removed_and_errors_pass():
    seen: list[Path] = []

    def crash() -> None:
        with temporary_folder("test") as folder:
            seen.append(folder / "file")
            seen[0].touch()
            raise UnsupportedModel("crashed", "")

    with pytest.raises(UnsupportedModel, match="crashed"):
        crash()
    assert not seen[0].parent.exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_temporary_folder_full_disk_raises_input_error(number: int):
    with (
        pytest.raises(InputError, match=os.strerror(number)) as caught,
        temporary_folder("test"),
    ):
        raise OSError(number, os.strerror(number))
    assert "TMPDIR" in caught.value.hint


def test_temporary_folder_other_error_on_full_disk_names_the_disk(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(InputError, match=os.strerror(errno.ENOSPC)), temporary_folder("test"):
        raise UnsupportedModel("onnxruntime crashed on this model", "export it again")


def test_temporary_folder_missing_parent_raises_input_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with (
        pytest.raises(InputError, match=os.strerror(errno.ENOENT)) as caught,
        temporary_folder("test"),
    ):
        pass
    assert "TMPDIR" in caught.value.hint
