"""Files that going on reads: each has its SHA-256 in the manifest, and is compared with it before it is used.

A file and the manifest cannot change in one move. So the manifest is written first, with the hash of the file as it is
(`files`) and as it will be (`moving`), and then the file is moved into place: whenever the process is killed, what is
there has one of the two.
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

_META = "ltp"  # key of the values beside tensors


class CorruptFileError(InputError):
    """A file of the run is not as it was written."""

    @classmethod
    def for_path(cls, path: Path, why: str) -> CorruptFileError:
        """The error about one file."""
        return cls(f"{path} is damaged: {why}", RESTORE_HINT)


class HashedFiles:
    """The files of a run directory that the manifest has hashes of, by their names in it."""

    def __init__(self, root: Path, manifest: ManifestFile) -> None:
        self.root, self._manifest = root, manifest

    def write(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        """Write a file, hashed on the way; the leader does."""
        if not distributed.is_main_process():
            return
        self._manifest.check_exists()
        content = self._manifest.content

        def ready(digest: str) -> None:
            content.moving[name] = digest
            self._manifest.write()

        content.files[name] = write_hashed(self.root / name, pieces, ready)
        del content.moving[name]  # the next that is written into the manifest takes it out there

    def add_hashes(self, hashes: Mapping[str, str]) -> None:
        """Take over files that were written by others; they are in the manifest when it is next written."""
        self._manifest.content.files.update(hashes)

    def remove_hash(self, name: str) -> None:
        """Have the manifest say nothing of a file that is about to change."""
        content = self._manifest.content
        if {name} & {*content.files, *content.moving}:
            content.files.pop(name, None)
            content.moving.pop(name, None)
            self._manifest.write()

    def list_names(self, folder: str) -> list[str]:
        """Those in a folder."""
        return [name for name in self._manifest.content.files if name.startswith(f"{folder}/")]

    def find_file(self, name: str) -> Path | None:
        """A file that is as it was written; None where none was. Damaged where it is another, or gone."""
        if not distributed.is_main_process():
            self._manifest.read()  # the leader has written it
        content, path = self._manifest.content, self.root / name
        known = {digests[name] for digests in (content.files, content.moving) if name in digests}
        if not known or (name not in content.files and not path.is_file()):
            return None
        try:
            found = sha256_file(path) if path.is_file() else None
        except OSError as error:
            raise CorruptFileError.for_path(path, f"it cannot be read: {error.strerror}") from None
        if found is None:
            raise CorruptFileError.for_path(path, "it is no longer there")
        if found not in known:
            raise CorruptFileError.for_path(
                path, "its content does not have the hash that the manifest names"
            )
        content.files[name] = found
        content.moving.pop(name, None)
        return path

    def write_tensors(self, name: str, tensors: Tensors, meta: Mapping[str, Any]) -> None:
        """Write tensors and a few values, in one file and one move."""
        if not distributed.is_main_process():
            return
        from safetensors.torch import save

        plain = {n: t.detach().cpu().contiguous() for n, t in tensors.items()}
        # safetensors orders its header by a hash of its own; ours must be the same bytes every time
        self.write(name, [save(plain, {_META: json_text(dict(sorted(meta.items())))})])

    def read_tensors(
        self, name: str, with_tensors: bool = True
    ) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What `write_tensors` wrote, or None; without tensors, the values beside them."""
        path = self.find_file(name)
        if path is None:
            return None
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                tensors = {
                    key: file.get_tensor(key) for key in (file.keys() if with_tensors else ())
                }
                meta = parse_json(file.metadata()[_META], str(path), RESTORE_HINT)
        except (SafetensorError, OSError, KeyError, TypeError) as error:
            raise CorruptFileError.for_path(path, str(error)) from None
        if not isinstance(meta, dict):
            raise CorruptFileError.for_path(path, "the values beside its tensors are no object")
        return tensors, meta
