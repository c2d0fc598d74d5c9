"""Files that a resumed run reads. Each has its SHA-256 in the manifest, and is checked before use.

A file and the manifest cannot change in one move. So the manifest is written first, with the hash
of the file as it is (`files`) and as it will be (`moving`). Then the file is moved into place.
Whenever the process is killed, the file has one of the two hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.run_directory.manifest import RESTORE_HINT, ManifestFile
from ltp_pipeline.system import distributed
from ltp_pipeline.system.files import json_text, write_hashed
from ltp_pipeline.system.hashing import sha256_file
from ltp_pipeline.system.json import parse_json

if TYPE_CHECKING:
    from torch import Tensor

    Tensors = Mapping[str, Tensor]

_META = "ltp"  # key of the metadata in a file of tensors


class CorruptFileError(InputError):
    """A file of the run is missing or has changed."""

    @classmethod
    def for_path(cls, path: Path, why: str) -> CorruptFileError:
        """Return the error for one file."""
        return cls(f"{path} is damaged: {why}", RESTORE_HINT)


class HashedFiles:
    """The files of a run directory whose hashes are in the manifest, by name."""

    def __init__(self, root: Path, manifest: ManifestFile) -> None:
        self.root = root
        self._manifest = manifest

    def write(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        """Write a file and its hash; only the main process does."""
        if not distributed.is_main_process():
            return
        self._manifest.check_exists()
        content = self._manifest.content

        def save_hash(digest: str) -> None:
            content.moving[name] = digest
            self._manifest.write()

        content.files[name] = write_hashed(self.root / name, pieces, save_hash)
        del content.moving[name]  # the next that is written into the manifest takes it out there

    def remove_hash(self, name: str) -> None:
        """Remove a file that is about to change from the manifest."""
        content = self._manifest.content
        if name in content.files or name in content.moving:
            content.files.pop(name, None)
            content.moving.pop(name, None)
            self._manifest.write()

    def list_names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder."""
        return [name for name in self._manifest.content.files if name.startswith(f"{folder}/")]

    def find_file(self, name: str) -> Path | None:
        """Return the path of a file whose content matches the manifest; None if none was written.

        Raises:
            CorruptFileError: The file is missing or has changed.
        """
        if not distributed.is_main_process():
            self._manifest.read()  # the main process has written it
        content = self._manifest.content
        path = self.root / name
        expected = {digests[name] for digests in (content.files, content.moving) if name in digests}
        if not expected or (name not in content.files and not path.is_file()):
            return None
        try:
            digest = sha256_file(path) if path.is_file() else None
        except OSError as error:
            raise CorruptFileError.for_path(path, f"it cannot be read: {error.strerror}") from None
        if digest is None:
            raise CorruptFileError.for_path(path, "it is missing")
        if digest not in expected:
            why = "its content does not match its hash in the manifest"
            raise CorruptFileError.for_path(path, why)
        content.files[name] = digest
        content.moving.pop(name, None)
        return path

    def write_tensors(self, name: str, tensors: Tensors, meta: Mapping[str, Any]) -> None:
        """Write tensors and metadata in one file; only the main process does."""
        if not distributed.is_main_process():
            return
        from safetensors.torch import save

        plain = {n: t.detach().cpu().contiguous() for n, t in tensors.items()}
        # safetensors orders metadata by a random hash. Sorted JSON gives the same bytes every time.
        self.write(name, [save(plain, {_META: json_text(dict(sorted(meta.items())))})])

    def read_tensors(
        self, name: str, with_tensors: bool = True
    ) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the tensors and metadata of a file; None if none was written.

        Args:
            name: Name of the file.
            with_tensors: False returns no tensors, only the metadata.

        Raises:
            CorruptFileError: The file is damaged.
        """
        path = self.find_file(name)
        if path is None:
            return None
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                keys = file.keys() if with_tensors else ()
                tensors = {key: file.get_tensor(key) for key in keys}
                meta = parse_json(file.metadata()[_META], str(path), RESTORE_HINT)
        except (SafetensorError, OSError, KeyError, TypeError) as error:
            raise CorruptFileError.for_path(path, str(error)) from None
        if not isinstance(meta, dict):
            raise CorruptFileError.for_path(path, "its metadata is not a JSON object")
        return tensors, meta
