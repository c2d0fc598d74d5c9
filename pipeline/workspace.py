"""The run directory: what is in it, what was done, and whether the same run may go on.

RUN/manifest.json says what the run depends on and which stages are done; RUN/state holds what resuming needs.
This is the only place that knows the names of files in a run directory.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from filelock import FileLock, Timeout
from pydantic import TypeAdapter

from ltp_pipeline import ranks
from ltp_pipeline.config import Settings
from ltp_pipeline.errors import InputError
from ltp_pipeline.events import Events
from ltp_pipeline.files import DATA, write_bytes, write_json
from ltp_pipeline.formats import FILE_PATTERNS
from ltp_pipeline.metric import Metric
from ltp_pipeline.progress import Reporter, SilentReporter

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST = "manifest.json"
OWN_AGAIN = "give it again: --task FILE.py"  # what to do where a run needs the user's own task
REPORT_JSON, REPORT_MD, REPORT_HTML = "report.json", "report.md", "report.html"
SUMS = "SHA256SUMS"
LOG = "log.jsonl"
EVENTS = "tensorboard"
BASELINE = "baseline"  # folder of the baseline's files
METRIC = TypeAdapter(Metric)
_STATE, _WEIGHTS = "state", "weights"
_TRAIL = "trail"
_META = "ltp"
_LOCK = ".lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)  # of file systems without locks, as some on a network
_MODELS = tuple(pattern + data for pattern in FILE_PATTERNS for data in ("", DATA))
_REPORTS = (REPORT_JSON, REPORT_MD, REPORT_HTML, SUMS, LOG, EVENTS)
_HANDOFFS = ("handoff", "handoff-baseline")
# Every name that a run writes into its directory
_OURS = (MANIFEST, *_REPORTS, _STATE, _WEIGHTS, _TRAIL, BASELINE, *_HANDOFFS, "pick-???", *_MODELS)


class Workspace:
    """One run directory, with the reporter that tells people about the run."""

    def __init__(
        self,
        root: Path,
        progress: Reporter | None = None,
        parent: Workspace | None = None,
        events: bool = False,
    ) -> None:
        self.root = root
        self._events = Events(root / EVENTS) if events and ranks.is_leader() else None
        self.progress = progress or SilentReporter()
        self.parent = parent  # the run whose trail this one goes on from
        self._manifest: dict[str, Any] = {"done": {}}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs out of the directory while this one works in it; a foreign folder is refused.

        Of the processes of one run, the leader does.
        """
        if not ranks.is_leader():
            yield
            return
        self._refuse_foreign()
        lock, is_new = FileLock(self.root / _LOCK), not self.root.exists()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock.acquire(blocking=False)
        except Timeout:
            what = f"another process is at work in {self.root}"
            raise InputError(what, "wait for it, or give another --out") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                what = f"cannot write {self.root}: {error.strerror}"
                raise InputError(what, "give a writable folder with --out") from None
        try:
            yield
        finally:
            lock.release()
            if is_new and not any(entry.name != _LOCK for entry in self.root.iterdir()):
                shutil.rmtree(self.root)  # nothing came of it

    def holds(self, identity: Mapping[str, Any]) -> bool:
        """Whether a run of this identity is there, to go on with; an error where it is another."""
        if not self.is_run:
            return False
        self._manifest = self._read_manifest()
        self.require_same(identity)
        return True

    def begin(self, identity: Mapping[str, Any]) -> None:
        """Take the directory for a new run; what an earlier one wrote is removed."""
        if ranks.is_leader():
            self._refuse_foreign()
            if self.is_run:
                self._clear()
        self._manifest = {"identity": dict(identity), "done": {}}
        self._write_manifest()

    def remember_inputs(self, model: Path, settings: Settings, metric: Metric | None = None) -> None:
        """Keep where the inputs lie and what is measured, for commands that come later and are given only the run."""
        self._manifest["metric"] = asdict(metric or self.metric)
        if settings.data.path is not None:
            data = settings.data.model_copy(update={"path": settings.data.path.resolve()})
            settings = settings.model_copy(update={"data": data})
        self._manifest["inputs"] = {
            "model": str(model.resolve()),
            "settings": settings.model_dump(mode="json", by_alias=True),
        }
        self._write_manifest()

    def inputs(self) -> tuple[Path, Settings]:
        """Model and settings of the run in this directory."""
        if not self.is_run:
            raise InputError(f"{self.root} holds no run", "give the directory that `ltp-pipeline run` wrote")
        self._manifest = self._read_manifest()
        try:
            kept = self._manifest["inputs"]
            return Path(kept["model"]), Settings.model_validate(kept["settings"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{self.root / MANIFEST} is damaged: {error}", "start the run again") from None

    def require_same(self, identity: Mapping[str, Any]) -> None:
        """Refuse to go on when model, data or settings are no longer those of the run."""
        changed = _differences(self._manifest.get("identity", {}), identity)
        if changed:
            raise InputError(
                f"{self.root} holds another run: {'; '.join(changed)}", "use --fresh to start over, or another --out"
            )

    @property
    def is_run(self) -> bool:
        """Whether the directory holds a run, finished or not."""
        return (self.root / MANIFEST).is_file()

    def run_of(self) -> Workspace:
        """The run that has the trail: this one, or the one that a picked entry comes from."""
        if self.entry is None:
            return self
        parent = Workspace(self.root.absolute().parent, self.progress)
        if not parent.is_run:
            raise InputError(
                f"{self.root} was picked from the trail of a run that is not around it", "put it back into its run"
            )
        parent.inputs()
        return parent

    @property
    def has_own_task(self) -> bool:
        """Whether the run in this directory was made with a task of the user's own."""
        return self.is_run and "task" in self._read_manifest()["identity"]

    @property
    def task_fingerprint(self) -> str | None:
        """Of that task; None where it had none."""
        return cast("str | None", self._read_manifest()["identity"].get("task"))

    @property
    def metric(self) -> Metric:
        """What the accuracies of the run mean."""
        try:
            return METRIC.validate_python(self._manifest.get("metric", {}), strict=False)
        except ValueError as error:
            raise InputError(f"{self.root / MANIFEST} is damaged: {error}", "start the run again") from None

    @property
    def default_budget(self) -> float | None:
        """The largest drop that the run is given where none was asked for; None where it has not been found."""
        found = self._manifest.get("default_budget")
        return float(found) if isinstance(found, int | float) and found >= 0 else None

    def keep_default_budget(self, budget: float) -> None:
        """Keep it for when the run goes on."""
        self._manifest["default_budget"] = budget
        self._write_manifest()

    @property
    def entry(self) -> int | None:
        """Which entry of its parent's trail this run finishes; None for a run of its own."""
        found = self._manifest.get("identity", {}).get("entry")
        return None if found is None else int(found)

    @property
    def model_sha256(self) -> str | None:
        """Of the model that the run in this directory was made from."""
        return cast("str | None", self._manifest.get("identity", {}).get("model"))

    @property
    def data_fingerprint(self) -> str | None:
        """Of the data that the run in this directory was made from."""
        return cast("str | None", self._manifest.get("identity", {}).get("data"))

    def done(self, stage: str) -> dict[str, Any] | None:
        """What a finished stage noted, or None when it has not finished."""
        result: dict[str, Any] | None = self._manifest["done"].get(stage)
        return result

    def mark_done(self, stage: str, notes: Mapping[str, Any]) -> None:
        """Note that a stage is finished; `notes` is what a later run needs to skip it."""
        self._manifest["done"][stage] = dict(notes)
        self._write_manifest()

    @property
    def timings(self) -> dict[str, float]:
        """Seconds spent in each stage, over all calls of the run."""
        return dict(self._manifest.get("timings", {}))

    def add_time(self, stage: str, seconds: float) -> None:
        """Note time spent in a stage."""
        timings = self._manifest.setdefault("timings", {})
        timings[stage] = timings.get(stage, 0.0) + seconds
        self._write_manifest()

    def kept_threads(self, fresh: bool = False) -> int | None:
        """How many threads the run in this directory computes with; None where none has begun, or a `fresh` will."""
        if fresh or not (self.root / MANIFEST).is_file():
            return None
        found = self._read_manifest().get("threads")
        return found if isinstance(found, int) and found > 0 else None

    def keep_threads(self, count: int) -> None:
        """Keep that number for when the run goes on."""
        self._manifest["threads"] = count
        self._write_manifest()

    @property
    def rules(self) -> dict[str, float]:
        """Shares that were found by rule when the run began, by name."""
        found = self._manifest.get("rules")
        listed = found.items() if isinstance(found, dict) else ()
        return {name: float(v) for name, v in listed if isinstance(v, int | float) and 0 <= v <= 1}

    def keep_rule(self, name: str, share: float) -> None:
        """Keep one for when the run goes on."""
        self._manifest["rules"] = {**self.rules, name: share}
        self._write_manifest()

    @property
    def makes_curve(self) -> bool | None:
        """Whether the baseline is to be a curve, as it was chosen by the time of its first training."""
        found = self._manifest.get("curve")
        return found if isinstance(found, bool) else None

    def keep_makes_curve(self, chosen: bool) -> None:
        """Keep it for when the run goes on."""
        self._manifest["curve"] = chosen
        self._write_manifest()

    def save_state(self, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Keep what a training phase needs to go on."""
        self._save(self._path_of(_STATE, name), tensors, meta)

    def load_state(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return what `save_state` kept, or None."""
        return self._load(self._path_of(_STATE, name))

    def save_weights(self, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Keep the final weights of a network."""
        self._save(self._path_of(_WEIGHTS, name), tensors, meta)

    def load_weights(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return what `save_weights` kept, or None."""
        return self._load(self._path_of(_WEIGHTS, name))

    def weights_meta(self, name: str) -> dict[str, Any] | None:
        """What stands beside kept weights, without reading them."""
        found = self._load(self._path_of(_WEIGHTS, name), with_tensors=False)
        return None if found is None else found[1]

    def adopt_weights(self, name: str) -> None:
        """Take over what the parent run kept, unless there is something already."""
        target = self._path_of(_WEIGHTS, name)
        source = None if self.parent is None else self.parent._path_of(_WEIGHTS, name)
        if source is not None and source.is_file() and not target.is_file():
            write_bytes(target, source.read_bytes())

    def _save(self, path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Write tensors and a few values, in one file and one move."""
        if not ranks.is_leader():
            return
        from safetensors.torch import save

        plain = {n: t.detach().cpu().contiguous() for n, t in tensors.items()}
        # safetensors orders its header by a hash of its own; ours must be the same bytes every time
        write_bytes(path, save(plain, {_META: json.dumps(meta, sort_keys=True)}))

    def _load(self, path: Path, with_tensors: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        if not path.is_file():
            return None
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                names = file.keys() if with_tensors else ()
                tensors = {key: file.get_tensor(key) for key in names}
                return tensors, json.loads(file.metadata()[_META])
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is damaged: {error}", "use --fresh to start over") from None

    def log(self, line: Mapping[str, Any]) -> None:
        """Append one line to the log."""
        if not ranks.is_leader():
            return
        try:
            with (self.root / LOG).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise InputError(f"cannot write {self.root / LOG}: {error.strerror}", "run the same again") from None
        if self._events is not None:
            self._events.add(line)

    def read_log(self) -> list[dict[str, Any]]:
        """Every line of the log; of steps that were done twice after an interruption, the later."""
        path = self.root / LOG
        if not path.is_file():
            return []
        lines: dict[tuple[Any, ...], dict[str, Any]] = {}
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue  # cut off by a kill
            key = (line.get("key"), line.get("step"), "val_accuracy" in line)
            lines.pop(key, None)
            lines[key] = line
        return list(lines.values())

    def keep_models(self, names: Collection[str]) -> list[str]:
        """Remove models that an earlier call wrote and this one was not asked for: nothing proves them."""
        patterns = [f"{folder}{pattern}" for folder in ("", f"{BASELINE}/", f"{BASELINE}/?/") for pattern in _MODELS]
        there = {self.relative(file): file for pattern in patterns for file in self.root.glob(pattern)}
        removed = sorted(name for name in there if name.removesuffix(DATA) not in names)
        for name in removed:
            there[name].unlink()
        return removed

    def path(self, name: str) -> Path:
        """Where a file of the run lies."""
        return self.root / name

    def trail_path(self, entry: int) -> Path:
        """Where the network of a trail entry lies."""
        return (self.parent or self).root / _TRAIL / f"{entry:03d}.onnx"

    @property
    def trail_index(self) -> Path:
        """The list of trail entries."""
        return (self.parent or self).root / _TRAIL / "trail.json"

    def picked_folder(self, entry: int) -> Path:
        """Where another entry of the trail is finished."""
        return self.root / f"pick-{entry:03d}"

    def relative(self, path: Path) -> str:
        """Name of a file as the report and the manifest say it."""
        return Path(os.path.relpath(path, self.root)).as_posix()

    def _path_of(self, kind: str, name: str) -> Path:
        return self.root / kind / f"{name}.safetensors"

    def _refuse_foreign(self) -> None:
        """Leave alone what is no run; hidden files are what an interrupted write left."""
        if not self.root.exists() or (self.root / MANIFEST).is_file():
            return
        if not self.root.is_dir() or any(not entry.name.startswith(".") for entry in self.root.iterdir()):
            raise InputError(f"{self.root} is not empty and holds no run", "give an empty or new folder with --out")

    def _clear(self) -> None:
        """Remove what an earlier run wrote, and nothing else.

        The manifest goes last, so that a clearing that was interrupted can be done again.
        """
        for entry in sorted(self.root.iterdir(), key=lambda e: e.name == MANIFEST):
            if not any(fnmatchcase(entry.name, pattern) for pattern in _OURS):
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def _read_manifest(self) -> dict[str, Any]:
        path = self.root / MANIFEST
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(manifest.get("done"), dict) or not isinstance(manifest.get("identity"), dict):
                raise ValueError("keys are missing")
        except (OSError, ValueError, AttributeError) as error:
            raise InputError(f"{path} is damaged: {error}", "use --fresh to start over") from None
        return dict(manifest)

    def _write_manifest(self) -> None:
        if ranks.is_leader():
            write_json(self.root / MANIFEST, self._manifest)


def point_folder(number: int) -> str:
    """Where files of a point of the baseline lie in a run directory, counted from 1."""
    return BASELINE if number == 1 else f"{BASELINE}/{number}"


def check_writable(folder: Path) -> None:
    """Fail before the work, not after it."""
    parent, is_file = folder, False
    try:
        is_file = folder.is_file()
        while not parent.exists():
            parent = parent.parent
        writable = parent.is_dir() and os.access(parent, os.W_OK)
    except OSError:  # e.g. a name that is too long
        writable = False
    if is_file:
        raise InputError(f"{folder} is a file", "give a folder with --out")
    if not writable:
        raise InputError(f"{folder} cannot be written", "give a writable folder with --out")


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Name what changed between two identities."""
    found = []
    for key in sorted({*old, *new}):
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += _differences(a, b, f"{prefix}{key}.")
        elif a != b and not prefix and key in ("data", "model", "task"):
            found.append(f"its {key} {'were' if key == 'data' else 'was'} another")  # hashes tell nobody anything
        elif a != b:
            found.append(f"{prefix}{key} was {a!r}, is now {b!r}")
    return found
