"""A task of the user's own: their data set, loss and metric, from a file or an object.

It is their code. It is loaded only where the user names it, and its errors are shown as theirs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from ltp_pipeline.errors import InputError, TaskFailed
from ltp_pipeline.hashing import sha256_of
from ltp_pipeline.task import Metric

if TYPE_CHECKING:
    from torch import Tensor

    Values = dict[str, Any]  # tensors by name; a list of tensors where samples differ in shape

NAME = "task"  # of the object in a file that is the task; without one, the file's own functions are
UNNAMED = Metric("score", share=False)


class DataSet(Protocol):
    """Samples by number; a torch Dataset is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The model's inputs by their names, and whatever loss and metric need, as arrays or tensors."""


class Measure(Protocol):
    """A metric that is no mean over samples; those of torchmetrics are such."""

    def update(self, outputs: Values, batch: Values) -> None:
        """Take a batch into account."""

    def compute(self) -> float | Tensor:
        """The metric of all batches so far."""


class UserTask(Protocol):
    """What a task may have. Only `dataset` must be there.

    Without `loss` the network learns from the original's outputs; without `score` and `measure` it is judged by how
    near it is to them. `metric` says what the score is called, its unit, and whether more of it is better.
    """

    metric: Metric
    fingerprint: str  # changes when the task does; of a file, its hash is part of it anyway

    def dataset(self, split: str) -> DataSet | None:
        """Of "train", "val" or "test"; None where there is none: samples for validation are then split off."""

    def loss(self, outputs: Values, batch: Values) -> Tensor:
        """The loss of a batch, one number."""

    def score(self, outputs: Values, batch: Values) -> Tensor:
        """The score of each sample of a batch; their mean counts."""

    def measure(self) -> Measure:
        """A new metric, in place of `score`."""


@dataclass(frozen=True)
class OwnTask:
    """A user's task: `code` has the functions, `origin` is what messages call it."""

    code: Any
    origin: str
    fingerprint: str | None

    @classmethod
    def of(cls, given: Any) -> OwnTask:
        """From a path, an object, or what was made of one before."""
        if isinstance(given, OwnTask):
            return given
        if isinstance(given, str | Path):
            return _load(Path(given))
        own = getattr(given, "fingerprint", None)
        return _checked(cls(given, f"the task {type(given).__name__}", None if own is None else f"object {own}"))

    @property
    def metric(self) -> Metric:
        """What its score is called."""
        found = getattr(self.code, "metric", None)
        return found if isinstance(found, Metric) else UNNAMED

    def has(self, name: str) -> bool:
        """Whether it has this part."""
        return callable(getattr(self.code, name, None))

    def call(self, name: str, *args: Any) -> Any:
        """Call a part of it; what goes wrong there is shown as theirs."""
        with self.theirs(name):
            return getattr(self.code, name)(*args)

    @contextlib.contextmanager
    def theirs(self, doing: str) -> Iterator[None]:
        """Their code runs here."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            raise _failed(f"{doing} of {self.origin} failed", error, self.origin) from error


def _load(path: Path) -> OwnTask:
    if not path.is_file():
        raise InputError(f"there is no task file {path}", "check --task")
    spec = importlib.util.spec_from_file_location("ltp_user_task", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is no Python file", "give --task a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # worker processes and dataclasses look for it there
    sys.path.insert(0, str(path.resolve().parent))  # as for a script: what lies beside it can be imported
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _failed(f"{path.name} cannot be loaded", error, path.name) from error
    code = getattr(module, NAME, module)
    own = getattr(code, "fingerprint", "")
    return _checked(OwnTask(code, path.name, f"file {sha256_of(path)} {own}"))


def _checked(task: OwnTask) -> OwnTask:
    if not task.has("dataset"):
        where = "define dataset(split)" if isinstance(task.code, ModuleType) else "give it a method dataset(split)"
        raise InputError(f"{task.origin} has no data set", f"{where} that returns samples (docs/tasks.md)")
    return task


def _failed(what: str, error: Exception, origin: str) -> TaskFailed:
    frames = traceback.extract_tb(error.__traceback__)
    mine = Path(__file__).name
    theirs = [f for f in frames if Path(f.filename).name != mine and "importlib" not in f.filename] or list(frames)
    text = "".join([*traceback.format_list(theirs), *traceback.format_exception_only(error)])
    return TaskFailed(f"{what}: {type(error).__name__}: {error}", f"correct {origin}", text)
