"""A task of the user's own: their data set, loss and metric, from a file or an object.

It is their code. It is loaded only where the user names it, and its errors are shown as theirs.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ltp_pipeline.errors import InputError, TaskFailed
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.system import random_state
from ltp_pipeline.system.hashing import sha256_file

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.system.arrays import Array

    Values = dict[str, Any]  # tensors by name; a list of tensors where samples differ in shape

PARTS = ("dataset", "loss", "score", "measure")
NOT_THEIRS = (
    "ltp_pipeline",
    "importlib",
    "contextlib",
)  # modules whose lines say nothing of a user's error
NAME = "task"  # of the object in a file that is the task; without one, the file's own functions are
UNNAMED = Metric("score", is_fraction=False)


class CustomDataset(Protocol):
    """Samples by number; a torch Dataset is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The model's inputs by their names, and whatever loss and metric need, as arrays or tensors."""


class CustomMetric(Protocol):
    """A metric that is no mean over samples; those of torchmetrics are such."""

    def update(self, outputs: Values, batch: Values) -> None:
        """Take a batch into account."""

    def compute(self) -> float | Tensor:
        """The metric of all batches so far."""


class CustomTaskProtocol(Protocol):
    """What a task may have. Only `dataset` must be there.

    Without `loss` the network learns from the original's outputs; without `score` and `measure` it is judged by how
    near it is to them. `metric` says what the score is called, its unit, and whether more of it is better.
    """

    metric: Metric
    fingerprint: str  # changes when the task does; of a file, its hash is part of it anyway

    def dataset(self, split: str) -> CustomDataset | None:
        """Of "train", "val" or "test"; None where there is none: samples for validation are then split off."""

    def loss(self, outputs: Values, batch: Values) -> Tensor:
        """The loss of a batch, one number."""

    def score(self, outputs: Values, batch: Values) -> Tensor:
        """The score of each sample of a batch; their mean counts."""

    def measure(self) -> CustomMetric:
        """A new metric, in place of `score`."""


@dataclass(frozen=True)
class CustomTask:
    """A user's task: `code` has the functions, `origin` is what messages call it, `sha256` that of its file."""

    code: Any
    origin: str
    sha256: str | None = None

    @classmethod
    def load(cls, given: Any) -> CustomTask:
        """From a path, an object, or what was made of one before."""
        if isinstance(given, CustomTask):
            return given
        if isinstance(given, str | Path):
            return _load_file(Path(given))
        name = given.__name__ if isinstance(given, type) else type(given).__name__
        return _check_parts(cls(given, f"the task {name}"))

    @property
    def declared_fingerprint(self) -> str | None:
        """The fingerprint that it gives itself."""
        found = getattr(self.code, "fingerprint", None)
        return None if found is None else str(found)

    @property
    def fingerprint(self) -> str | None:
        """What tells it from others, with the hash of its file; None where nothing does."""
        if self.sha256 is not None:
            return f"file {self.sha256} {self.declared_fingerprint or ''}".rstrip()
        return None if self.declared_fingerprint is None else f"object {self.declared_fingerprint}"

    @property
    def metric(self) -> Metric:
        """What its score is called."""
        found = getattr(self.code, "metric", None)
        return UNNAMED if found is None else found

    def has_function(self, name: str) -> bool:
        """Whether it has this part."""
        return callable(getattr(self.code, name, None))

    def call_function(self, name: str, *args: Any, drawn: tuple[int | str, ...]) -> Any:
        """Call a part of it; random numbers that it draws depend on `drawn` alone."""
        with self.report_errors(name), random_state.isolate_rng(*drawn):
            return getattr(self.code, name)(*args)

    def report_errors(self, doing: str) -> AbstractContextManager[None]:
        """Their code runs here; what goes wrong is shown as theirs."""
        return report_task_errors(f"{doing} of {self.origin} failed", self.origin)


@contextmanager
def report_task_errors(what: str, origin: str) -> Iterator[None]:
    """Code of this origin runs here; `what` is what its errors begin with."""
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        said = f"{what}: {type(error).__name__}: {error}".removesuffix(": ")
        raise TaskFailed(said, f"correct {origin}", _format_traceback(error)) from error


def to_array(value: Any) -> Array:
    """What their code gives; tensors may be on any device and need a gradient."""
    import torch

    if isinstance(value, list | tuple) and any(isinstance(v, torch.Tensor) for v in value):
        return np.stack([to_array(v) for v in value])
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = value.float() if value.dtype == torch.bfloat16 else value
    return np.asarray(value)


def is_numeric(array: Array) -> bool:
    """Whether it holds nothing else: no text, no objects."""
    return array.dtype.kind in "biuf"


def describe_value(value: Any) -> str:
    """What a message calls something that was not expected."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return {"str": "text", "NoneType": "None"}.get(
        type(value).__name__, f"a {type(value).__name__}"
    )


def _load_file(path: Path) -> CustomTask:
    if not path.is_file():
        raise InputError(f"there is no task file {path}", "check --task")
    spec = importlib.util.spec_from_file_location("ltp_user_task", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is no Python file", "give --task a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # worker processes and dataclasses look for it there
    sys.path.insert(
        0, str(path.resolve().parent)
    )  # as for a script: what lies beside it can be imported
    with (
        report_task_errors(f"{path.name} cannot be loaded", path.name),
        random_state.isolate_rng("load"),
    ):
        spec.loader.exec_module(module)
    return _check_parts(CustomTask(getattr(module, NAME, module), path.name, sha256_file(path)))


def _check_parts(task: CustomTask) -> CustomTask:
    if isinstance(task.code, type):
        raise InputError(
            f"{task.origin} has the class {task.code.__name__} as its task", "make an object of it"
        )
    if not task.has_function("dataset"):
        where = (
            "define dataset(split)"
            if isinstance(task.code, ModuleType)
            else "give it a method dataset(split)"
        )
        raise InputError(
            f"{task.origin} has no data set", f"{where} that returns samples (docs/tasks.md)"
        )
    for part in PARTS:
        found = getattr(task.code, part, None)
        if found is not None and not callable(found):
            raise InputError(
                f"{part} of {task.origin} is {describe_value(found)}, no function",
                "define it, or leave it out",
            )
    if not isinstance(task.metric, Metric):
        raise InputError(
            f"metric of {task.origin} is {describe_value(task.metric)}, no Metric",
            "write metric = Metric(NAME), from ltp_pipeline; what measures belongs into score or measure",
        )
    return task


def _format_traceback(error: BaseException) -> str:
    """The traceback from their first line on."""
    trace = error.__traceback__
    while (
        trace is not None
        and trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] in NOT_THEIRS
    ):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))
