"""The run directory: its state, and whether a run may be resumed in it.

RUN/manifest.json says what the run depends on and which stages are done (manifest.py). RUN/state,
RUN/weights and RUN/trail hold what a resumed run needs, each file with its hash in the manifest
(hashed_files.py).
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
from ltp_pipeline.run_directory.hashed_files import CorruptFileError, HashedFiles
from ltp_pipeline.run_directory.log import RunLog
from ltp_pipeline.run_directory.manifest import (
    RESTORE_HINT,
    Manifest,
    ManifestFile,
    RunIdentity,
    RunInputs,
    describe_differences,
)
from ltp_pipeline.run_directory.names import EVENTS, LOG, STATE, TRAIL, TRAIL_INDEX, WEIGHTS
from ltp_pipeline.run_directory.tensorboard_log import TensorBoardLog
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.system import distributed
from ltp_pipeline.system.files import COPY_CHUNK, DATA_SUFFIX, json_text
from ltp_pipeline.system.json import read_json
from ltp_pipeline.system.progress import Reporter, SilentReporter
from ltp_pipeline.system.text import pluralize

if TYPE_CHECKING:
    from torch import Tensor

    SavedTensors = tuple[dict[str, Tensor], dict[str, Any]]  # tensors and metadata

CUSTOM_TASK_HINT = "pass it again: --task FILE.py"  # hint for a run with a custom task


class RunDirectory:
    """A run directory, with the reporter that shows progress of the run.

    Attributes:
        root: Path of the directory.
        progress: Shows progress and notes to the user.
        parent: The run whose trail this run continues from; None for a run of its own.
    """

    def __init__(
        self,
        root: Path,
        progress: Reporter | None = None,
        parent: RunDirectory | None = None,
        events: bool = False,
    ) -> None:
        self.root = root
        self._events = None
        if events and distributed.is_main_process():
            self._events = TensorBoardLog(root / EVENTS)
        self.progress = progress or SilentReporter()
        self.parent = parent
        self._manifest = ManifestFile(root)
        self._files = HashedFiles(root, self._manifest)
        self._log = RunLog(root / LOG)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out of the directory.

        Only the main process takes the lock.

        Raises:
            InputError: Another process works here, or the folder holds something else than a run.
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
        """Return whether a run of this identity is here and can be resumed.

        Raises:
            InputError: The directory holds another run, or its trail is damaged.
        """
        if not self.is_run:
            return False
        self._manifest.read()
        self.check_identity(identity)
        self.check_trail()
        return True

    def begin_run(self, identity: Mapping[str, Any]) -> None:
        """Begin a new run; files of an earlier run are removed."""
        if distributed.is_main_process():
            access.check_own_directory(self.root)
            if self.is_run:
                names.remove_run(self.root)
        self._manifest.create(RunIdentity(**identity))

    def check_identity(self, identity: Mapping[str, Any]) -> None:
        """Raise InputError if model, data or settings differ from those of the run."""
        changed = describe_differences(self.manifest.identity, RunIdentity(**identity))
        if changed:
            raise InputError(
                f"{self.root} holds another run: {'; '.join(changed)}",
                "use --fresh to start over, or another --out",
            )

    def save_inputs(self, model: Path, settings: Settings, metric: Metric | None = None) -> None:
        """Save where the inputs are and what is measured, for later commands on this run."""
        if settings.data.path is not None:
            data = settings.data.model_copy(update={"path": settings.data.path.resolve()})
            settings = settings.model_copy(update={"data": data})
        inputs = RunInputs(model=str(model.resolve()), settings=settings)
        self.update_manifest(inputs=inputs, metric=metric or self.manifest.metric)

    def load_inputs(self) -> tuple[Path, Settings]:
        """Return the model's path and the settings of the run.

        Raises:
            InputError: There is no run, or it was stopped as it began.
        """
        if not self.is_run:
            hint = "pass the directory that `ltp-pipeline run` wrote"
            raise InputError(f"{self.root} holds no run", hint)
        inputs = self._manifest.read().inputs
        if inputs is None:
            message = f"{self.root} holds a run that was stopped before it began"
            raise InputError(message, "start the same run again")
        return Path(inputs.model), inputs.settings

    def find_trail_run(self) -> RunDirectory:
        """Return the run that has the trail: this one, or the one that a picked entry comes from.

        Raises:
            InputError: The folder of a picked entry no longer lies in its run.
        """
        if self.entry is None:
            return self
        parent = RunDirectory(self.root.absolute().parent, self.progress)
        if not parent.is_run:
            message = f"{self.root} was picked from the trail of a run that is not around it"
            raise InputError(message, "put it back into its run")
        parent.load_inputs()
        return parent

    @property
    def has_custom_task(self) -> bool:
        """Whether the run was made with a custom task."""
        return self.is_run and self.task_fingerprint is not None

    @property
    def task_fingerprint(self) -> str | None:
        """Fingerprint of the custom task; None without one."""
        return self._manifest.read().identity.task

    @property
    def entry(self) -> int | None:
        """The trail entry that this run finishes; None for a run of its own."""
        return self.manifest.identity.entry

    # What was found, chosen or done

    @property
    def manifest(self) -> Manifest:
        """The manifest as it was last read or changed."""
        return self._manifest.content

    def update_manifest(self, **values: Any) -> None:
        """Change values of the manifest."""
        for name, value in values.items():
            setattr(self._manifest.content, name, value)
        self._manifest.write()

    def saved_threads(self, fresh: bool = False) -> int | None:
        """Return the number of threads that the run began with; None if it begins now."""
        return None if fresh or not self.is_run else self._manifest.read().threads

    def add_time(self, stage: str, seconds: float) -> None:
        """Add time to a stage in the manifest."""
        timings = self.manifest.timings
        self.update_manifest(timings={**timings, stage: timings.get(stage, 0.0) + seconds})

    # Checkpoints and final weights

    def save_state(self, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Save a checkpoint of a training phase."""
        self._files.write_tensors(names.tensor_file_name(STATE, name), tensors, meta)

    def load_state(self, name: str) -> SavedTensors | None:
        """Return the checkpoint of a training phase, or None.

        A damaged checkpoint is reported to the user and counts as none, so the phase starts again.
        """
        return self._load_tensors(names.tensor_file_name(STATE, name), "this phase starts again")

    def save_weights(
        self, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]
    ) -> None:
        """Save the final weights of a network."""
        self._files.write_tensors(names.tensor_file_name(WEIGHTS, name), tensors, meta)

    def load_weights(self, name: str) -> SavedTensors | None:
        """Return the final weights of a network, or None.

        Damaged weights are reported to the user and count as none: checkpoints give them again.
        """
        file = names.tensor_file_name(WEIGHTS, name)
        return self._load_tensors(file, "these weights are computed again")

    def _load_tensors(self, file: str, consequence: str) -> SavedTensors | None:
        try:
            return self._files.read_tensors(file)
        except CorruptFileError as error:
            self.progress.say(f"Note: {error.message}; {consequence}")
            return None

    def load_weights_metadata(self, name: str) -> dict[str, Any] | None:
        """Return the metadata of saved weights; None if these are missing or damaged."""
        file = names.tensor_file_name(WEIGHTS, name)
        try:
            stored = self._files.read_tensors(file, with_tensors=False)
        except CorruptFileError:
            return None
        return None if stored is None else stored[1]

    def inherit_weights(self, name: str) -> None:
        """Copy weights from the parent run, unless this run has its own."""
        file = names.tensor_file_name(WEIGHTS, name)
        if self.parent is None or self.load_weights_metadata(name) is not None:
            return
        source = self.parent._files.find_file(file)
        if source is not None:
            with source.open("rb") as content:
                self._files.write(file, iter(lambda: content.read(COPY_CHUNK), b""))

    def corrupt_state_error(self, name: str, why: str) -> CorruptFileError:
        """Return the error for a checkpoint whose content does not fit."""
        return CorruptFileError.for_path(self.path(names.tensor_file_name(STATE, name)), why)

    def corrupt_weights_error(self, name: str, why: str) -> CorruptFileError:
        """Return the error for saved weights whose content does not fit."""
        return CorruptFileError.for_path(self.path(names.tensor_file_name(WEIGHTS, name)), why)

    # The trail

    def trail_path(self, entry: int) -> Path:
        """Return the path of the network of a trail entry."""
        return self._trail_run.path(names.trail_file_name(entry))

    def forget_trail_entry(self, entry: int) -> None:
        """Remove the hashes of a trail entry that is about to be written."""
        for data in ("", DATA_SUFFIX):
            self._files.remove_hash(names.trail_file_name(entry) + data)

    def save_trail_entry(
        self, entry: int, hashes: tuple[str | None, str | None], entries: list[dict[str, Any]]
    ) -> None:
        """Save the hashes of an entry's file and external data, and trail.json with all entries."""
        file = names.trail_file_name(entry)
        for name, digest in zip((file, file + DATA_SUFFIX), hashes, strict=True):
            if digest:
                self.manifest.files[name] = digest  # saved with the next write of the manifest
        self._files.write(TRAIL_INDEX, [json_text(entries).encode()])

    def read_trail(self) -> Any:
        """Return the content of trail.json; an empty list if there is none."""
        path = self._trail_run._files.find_file(TRAIL_INDEX)
        return [] if path is None else read_json(path, RESTORE_HINT)

    def corrupt_trail_error(self, why: str) -> CorruptFileError:
        """Return the error for a trail.json whose content does not fit."""
        return CorruptFileError.for_path(self._trail_run.path(TRAIL_INDEX), why)

    def check_trail(self) -> None:
        """Raise CorruptFileError if a file of the trail has changed.

        Only learning again would restore it.
        """
        files = self._trail_run._files
        for name in files.list_names(TRAIL):
            files.find_file(name)

    @property
    def _trail_run(self) -> RunDirectory:
        return self.parent or self

    # The log, and other files

    def append_log(self, line: Mapping[str, Any]) -> None:
        """Append a line to the log."""
        if not distributed.is_main_process():
            return
        self._log.append(line)
        if self._events is not None:
            self._events.add_line(line)

    def read_log(self) -> list[dict[str, Any]]:
        """Return every readable line of the log."""
        lines, unreadable = self._log.read()
        if unreadable:
            self.progress.say(
                f"Note: {pluralize(unreadable, 'line')} of {self._log.path} "
                "cannot be read and is skipped"
            )
        return lines

    def remove_other_models(self, requested: Collection[str]) -> list[str]:
        """Remove models that were not requested now, and return their names.

        Nothing in the new report verifies them.
        """
        there = {self.relative_name(file): file for file in names.list_models(self.root)}
        removed = sorted(name for name in there if name.removesuffix(DATA_SUFFIX) not in requested)
        for name in removed:
            there[name].unlink()
        return removed

    def path(self, name: str) -> Path:
        """Return the path of a file of the run."""
        return self.root / name

    def picked_directory(self, entry: int) -> Path:
        """Return the directory in which another trail entry is finished."""
        return self.path(names.picked_directory_name(entry))

    def relative_name(self, path: Path) -> str:
        """Return the name of a file as report and manifest have it."""
        return Path(os.path.relpath(path, self.root)).as_posix()


class TrialRunDirectory(RunDirectory):
    """The directory of a run during a trial: progress is shown, and nothing is saved."""

    def __init__(self, run_directory: RunDirectory) -> None:
        super().__init__(run_directory.root, run_directory.progress)

    def save_state(self, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Save nothing."""

    def load_state(self, name: str) -> SavedTensors | None:  # noqa: ARG002 - nothing is saved
        """Return None."""
        return None

    def append_log(self, line: Mapping[str, Any]) -> None:
        """Log nothing."""
