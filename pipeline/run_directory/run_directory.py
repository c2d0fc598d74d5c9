"""The run directory: what is in it, what was done, and whether the same run may go on.

RUN/manifest.json says what the run depends on and which stages are done (manifest.py); RUN/state, RUN/weights and
RUN/trail hold what going on needs, each file with its hash in the manifest (kept.py).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.run_directory import access, names
from ltp_pipeline.run_directory.access import check_writable
from ltp_pipeline.run_directory.hashed_files import CorruptFileError, HashedFiles
from ltp_pipeline.run_directory.log import RunLog
from ltp_pipeline.run_directory.manifest import (
    RESTORE_HINT,
    Manifest,
    ManifestFile,
    ReportInputs,
    RunIdentity,
    RunInputs,
    describe_differences,
)
from ltp_pipeline.run_directory.names import (
    BASELINE,
    EVENTS,
    LOG,
    MANIFEST,
    REPORT_HTML,
    REPORT_JSON,
    REPORT_MD,
    STATE,
    SUMS,
    TRAIL,
    TRAIL_INDEX,
    WEIGHTS,
    point_folder,
)
from ltp_pipeline.run_directory.tensorboard_log import TensorBoardLog
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.system import distributed
from ltp_pipeline.system.files import COPY_CHUNK, DATA_SUFFIX, json_text
from ltp_pipeline.system.json import read_json
from ltp_pipeline.system.progress import Reporter, SilentReporter
from ltp_pipeline.system.text import pluralize

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "BASELINE",
    "CUSTOM_TASK_HINT",
    "MANIFEST",
    "REPORT_HTML",
    "REPORT_JSON",
    "REPORT_MD",
    "SUMS",
    "CorruptFileError",
    "ReportInputs",
    "RunDirectory",
    "check_writable",
    "point_folder",
]

CUSTOM_TASK_HINT = (
    "give it again: --task FILE.py"  # what to do where a run needs the user's own task
)


class RunDirectory:
    """One run directory, with the reporter that tells people about the run."""

    def __init__(
        self,
        root: Path,
        progress: Reporter | None = None,
        parent: RunDirectory | None = None,
        events: bool = False,
    ) -> None:
        self.root = root
        self._events = (
            TensorBoardLog(root / EVENTS) if events and distributed.is_main_process() else None
        )
        self.progress = progress or SilentReporter()
        self.parent = parent  # the run whose trail this one goes on from
        self._manifest = ManifestFile(root)
        self._files = HashedFiles(root, self._manifest)
        self._log = RunLog(root / LOG)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs out of the directory while this one works in it; a foreign folder is refused.

        Of the processes of one run, the leader does.
        """
        if not distributed.is_main_process():
            yield
            return
        with access.lock_directory(self.root):
            yield

    # Which run it is

    @property
    def is_run(self) -> bool:
        """Whether the directory holds a run, finished or not."""
        return self._manifest.exists

    def has_same_run(self, identity: Mapping[str, Any]) -> bool:
        """Whether a run of this identity is there, to go on with; an error where it is another, or its trail is."""
        if not self.is_run:
            return False
        self._manifest.read()
        self.check_identity(identity)
        self.check_trail()
        return True

    def begin_run(self, identity: Mapping[str, Any]) -> None:
        """Take the directory for a new run; what an earlier one wrote is removed."""
        if distributed.is_main_process():
            access.check_own_directory(self.root)
            if self.is_run:
                names.remove_run(self.root)
        self._manifest.create(RunIdentity(**identity))

    def check_identity(self, identity: Mapping[str, Any]) -> None:
        """Refuse to go on when model, data or settings are no longer those of the run."""
        changed = describe_differences(self.manifest.identity, RunIdentity(**identity))
        if changed:
            raise InputError(
                f"{self.root} holds another run: {'; '.join(changed)}",
                "use --fresh to start over, or another --out",
            )

    def save_inputs(self, model: Path, settings: Settings, metric: Metric | None = None) -> None:
        """Keep where the inputs lie and what is measured, for commands that come later and are given only the run."""
        if settings.data.path is not None:
            data = settings.data.model_copy(update={"path": settings.data.path.resolve()})
            settings = settings.model_copy(update={"data": data})
        inputs = RunInputs(model=str(model.resolve()), settings=settings)
        self.update_manifest(inputs=inputs, metric=metric or self.manifest.metric)

    def load_inputs(self) -> tuple[Path, Settings]:
        """Model and settings of the run in this directory."""
        if not self.is_run:
            raise InputError(
                f"{self.root} holds no run", "give the directory that `ltp-pipeline run` wrote"
            )
        inputs = self._manifest.read().inputs
        if inputs is None:
            raise InputError(
                f"{self.root} holds a run that was stopped as it began", "start the same run again"
            )
        return Path(inputs.model), inputs.settings

    def find_trail_run(self) -> RunDirectory:
        """The run that has the trail: this one, or the one that a picked entry comes from."""
        if self.entry is None:
            return self
        parent = RunDirectory(self.root.absolute().parent, self.progress)
        if not parent.is_run:
            raise InputError(
                f"{self.root} was picked from the trail of a run that is not around it",
                "put it back into its run",
            )
        parent.load_inputs()
        return parent

    @property
    def has_custom_task(self) -> bool:
        """Whether the run in this directory was made with a task of the user's own."""
        return self.is_run and self.task_fingerprint is not None

    @property
    def task_fingerprint(self) -> str | None:
        """Of that task; None where it had none."""
        return self._manifest.read().identity.task

    @property
    def entry(self) -> int | None:
        """Which entry of its parent's trail this run finishes; None for a run of its own."""
        return self.manifest.identity.entry

    # What was found, chosen or done

    @property
    def manifest(self) -> Manifest:
        """What the manifest says, as it was last read or changed."""
        return self._manifest.content

    def update_manifest(self, **values: Any) -> None:
        """Change values of the manifest, for when the run goes on."""
        for name, value in values.items():
            setattr(self._manifest.content, name, value)
        self._manifest.write()

    def saved_threads(self, fresh: bool = False) -> int | None:
        """How many threads the run in this directory computes with; None where none has begun, or a `fresh` will."""
        return None if fresh or not self.is_run else self._manifest.read().threads

    def add_time(self, stage: str, seconds: float) -> None:
        """Note time spent in a stage."""
        timings = self.manifest.timings
        self.update_manifest(timings={**timings, stage: timings.get(stage, 0.0) + seconds})

    # Checkpoints and final weights

    def save_state(self, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Keep what a training phase needs to go on."""
        self._files.write_tensors(names.tensor_file_name(STATE, name), tensors, meta)

    def load_state(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What `save_state` kept, or None; also where it is damaged, which is said: the phase begins again then."""
        try:
            return self._files.read_tensors(names.tensor_file_name(STATE, name))
        except CorruptFileError as error:
            self.progress.say(f"Note: {error.message}; this phase begins again")
            return None

    def save_weights(
        self, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]
    ) -> None:
        """Keep the final weights of a network."""
        self._files.write_tensors(names.tensor_file_name(WEIGHTS, name), tensors, meta)

    def load_weights(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What `save_weights` kept, or None; also where it is damaged, which is said: checkpoints give it again."""
        try:
            return self._files.read_tensors(names.tensor_file_name(WEIGHTS, name))
        except CorruptFileError as error:
            self.progress.say(f"Note: {error.message}; these weights are made again")
            return None

    def load_weights_metadata(self, name: str) -> dict[str, Any] | None:
        """What stands beside kept weights that are as they were written."""
        try:
            found = self._files.read_tensors(
                names.tensor_file_name(WEIGHTS, name), with_tensors=False
            )
        except CorruptFileError:
            return None
        return None if found is None else found[1]

    def inherit_weights(self, name: str) -> None:
        """Take over what the parent run kept, unless there is something already."""
        file = names.tensor_file_name(WEIGHTS, name)
        if self.parent is None or self.load_weights_metadata(name) is not None:
            return
        source = self.parent._files.find_file(file)
        if source is not None:
            with source.open("rb") as content:
                self._files.write(file, iter(lambda: content.read(COPY_CHUNK), b""))

    def corrupt_state_error(self, name: str, why: str) -> CorruptFileError:
        """The error where a checkpoint holds something else than it should."""
        return CorruptFileError.for_path(self.path(names.tensor_file_name(STATE, name)), why)

    def corrupt_weights_error(self, name: str, why: str) -> CorruptFileError:
        """The same of kept weights."""
        return CorruptFileError.for_path(self.path(names.tensor_file_name(WEIGHTS, name)), why)

    # The trail

    def trail_path(self, entry: int) -> Path:
        """Where the network of a trail entry lies."""
        return self._trail_run.path(names.trail_file_name(entry))

    def forget_trail_entry(self, entry: int) -> None:
        """An entry is about to be written."""
        for data in ("", DATA_SUFFIX):
            self._files.remove_hash(names.trail_file_name(entry) + data)

    def save_trail_entry(
        self, entry: int, hashes: tuple[str | None, str | None], listed: list[dict[str, Any]]
    ) -> None:
        """Keep the hashes of an entry that was written and of the data beside it, and the list of all entries."""
        file = names.trail_file_name(entry)
        self._files.add_hashes(
            {
                name: digest
                for name, digest in zip((file, file + DATA_SUFFIX), hashes, strict=True)
                if digest
            }
        )
        self._files.write(TRAIL_INDEX, [json_text(listed).encode()])

    def read_trail(self) -> Any:
        """The list of the trail's entries, as it was kept."""
        path = self._trail_run._files.find_file(TRAIL_INDEX)
        return [] if path is None else read_json(path, RESTORE_HINT)

    def corrupt_trail_error(self, why: str) -> CorruptFileError:
        """The error where that list makes no sense."""
        return CorruptFileError.for_path(self._trail_run.path(TRAIL_INDEX), why)

    def check_trail(self) -> None:
        """Raise where a file of the trail is not as it was written: only learning anew would bring it back."""
        kept = self._trail_run._files
        for name in kept.list_names(TRAIL):
            kept.find_file(name)

    @property
    def _trail_run(self) -> RunDirectory:
        return self.parent or self

    # The log, and other files

    def append_log(self, line: Mapping[str, Any]) -> None:
        """Append one line to the log."""
        if not distributed.is_main_process():
            return
        self._log.append(line)
        if self._events is not None:
            self._events.add_line(line)

    def read_log(self) -> list[dict[str, Any]]:
        """Every line of the log that can be read."""
        lines, unreadable = self._log.read()
        if unreadable:
            self.progress.say(
                f"Note: {pluralize(unreadable, 'line')} of {self._log.path} cannot be read and is left out"
            )
        return lines

    def remove_other_models(self, wanted: Collection[str]) -> list[str]:
        """Remove models that an earlier call wrote and this one was not asked for: nothing proves them."""
        there = {self.relative_name(file): file for file in names.list_models(self.root)}
        removed = sorted(name for name in there if name.removesuffix(DATA_SUFFIX) not in wanted)
        for name in removed:
            there[name].unlink()
        return removed

    def path(self, name: str) -> Path:
        """Where a file of the run lies."""
        return self.root / name

    def picked_directory(self, entry: int) -> Path:
        """Where another entry of the trail is finished."""
        return self.path(names.picked_directory_name(entry))

    def relative_name(self, path: Path) -> str:
        """Name of a file as the report and the manifest say it."""
        return Path(os.path.relpath(path, self.root)).as_posix()
