"""Files with their hashes in the manifest: what is not as it was written is not used."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ltp_pipeline.run_directory import hashed_files, manifest
from ltp_pipeline.run_directory.hashed_files import CorruptFileError, HashedFiles
from ltp_pipeline.run_directory.manifest import ManifestFile, RunIdentity
from ltp_pipeline.system.hashing import sha256_file

NAME = "state/learn.safetensors"


class Killed(BaseException):
    """As if by SIGKILL: nothing after it happens."""


def begun(root: Path) -> HashedFiles:
    file = ManifestFile(root)
    file.create(RunIdentity())
    return HashedFiles(root, file)


def reopened(root: Path) -> HashedFiles:
    file = ManifestFile(root)
    file.read()
    return HashedFiles(root, file)


def content(files: HashedFiles) -> bytes | None:
    path = files.find_file(NAME)
    return None if path is None else path.read_bytes()


def test_find_file_returns_the_written_file(tmp_path: Path):
    begun(tmp_path).write(NAME, [b"one", memoryview(b" two")])
    assert content(reopened(tmp_path)) == b"one two"


@pytest.mark.parametrize("spoiled", [b"one twO", b"one", b"", None, "folder"])
def test_find_file_changed_or_missing_content_raises(tmp_path: Path, spoiled: bytes | str | None):
    files = begun(tmp_path)
    files.write(NAME, [b"one two"])
    files.write("state/other.safetensors", [b"later"])
    (tmp_path / NAME).unlink()
    if isinstance(spoiled, bytes):
        (tmp_path / NAME).write_bytes(spoiled)
    elif spoiled:
        (tmp_path / NAME).mkdir()
    with pytest.raises(CorruptFileError, match=r"state/learn\.safetensors "):
        reopened(tmp_path).find_file(NAME)


def test_find_file_content_of_another_file_raises(tmp_path: Path):
    files = begun(tmp_path)
    files.write(NAME, [b"one"])
    files.write("state/other.safetensors", [b"two"])
    (tmp_path / "state" / "other.safetensors").replace(tmp_path / NAME)
    with pytest.raises(CorruptFileError):
        reopened(tmp_path).find_file(NAME)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("moment", ["before the manifest", "before the move", "after the move"])
def test_write_killed_at_any_moment_leaves_old_or_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, is_first: bool
):
    files = begun(tmp_path)
    if not is_first:
        files.write(NAME, [b"old"])
    replace, write_json = Path.replace, manifest.write_json

    def killed(*_: object) -> None:
        raise Killed

    def move(self: Path, target: Path) -> None:
        if target.name != "manifest.json":
            if moment == "after the move":
                replace(self, target)
            raise Killed
        replace(self, target)

    monkeypatch.setattr(Path, "replace", move)
    monkeypatch.setattr(
        manifest, "write_json", killed if moment == "before the manifest" else write_json
    )
    with pytest.raises(Killed):
        files.write(NAME, [b"new"])
    monkeypatch.undo()
    again = reopened(tmp_path)
    assert content(again) == (
        b"new" if moment == "after the move" else None if is_first else b"old"
    )
    again.write(NAME, [b"newer"])
    assert content(reopened(tmp_path)) == b"newer"


def test_write_next_file_invalidates_the_old_content(tmp_path: Path):
    files = begun(tmp_path)
    files.write(NAME, [b"old"])
    files.write(NAME, [b"new"])
    files.write("trail/trail.json", [b"[]"])
    assert list(reopened(tmp_path)._manifest.content.moving) == ["trail/trail.json"]
    (tmp_path / NAME).write_bytes(b"old")
    with pytest.raises(CorruptFileError):
        reopened(tmp_path).find_file(NAME)


def test_write_failed_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files = begun(tmp_path)
    files.write(NAME, [b"old"])

    def fail(_path: Path, _pieces: object, ready: Callable[[str], None]) -> str:
        ready("0" * 64)
        raise Killed

    monkeypatch.setattr(hashed_files, "write_hashed", fail)
    with pytest.raises(Killed):
        files.write(NAME, [b"new"])
    files._manifest.write()  # as of the time that a stage took
    assert content(reopened(tmp_path)) == b"old"


def test_write_hashes_without_reading_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files = begun(tmp_path)
    monkeypatch.setattr(hashed_files, "sha256_file", lambda _: pytest.fail("read again"))
    files.write(NAME, [b"one"])
    assert files._manifest.content.files[NAME] == sha256_file(tmp_path / NAME)


def test_save_tensors_is_reproducible_and_restored(tmp_path: Path):
    tensors, meta = (
        {f"t{i}": torch.full((2,), float(i)) for i in range(9)},
        {"steps": 7, "accuracy": -0.0},
    )
    written = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        files = begun(folder)
        files.write_tensors(NAME, tensors, meta)
        written.append((folder / NAME).read_bytes())
        restored = reopened(folder).read_tensors(NAME)
        assert restored is not None
        assert restored[1] == meta
        assert all(torch.equal(restored[0][name], tensor) for name, tensor in tensors.items())
    assert written[0] == written[1]


def test_load_tensors_of_other_content_raises(tmp_path: Path):
    files = begun(tmp_path)
    files.write(NAME, [b"no tensors"])
    with pytest.raises(CorruptFileError):
        files.read_tensors(NAME)
