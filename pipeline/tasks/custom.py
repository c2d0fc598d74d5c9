"""Load the user's own task: data set, loss and metric from a file or an object.

It is foreign code. It is loaded only if the user names it, and its errors are shown as its own.
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
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.hashing import sha256_file

if TYPE_CHECKING:
    from torch import Tensor

Values = dict[str, Any]  # tensors by name; a list of tensors if samples differ in shape

FUNCTIONS = ("dataset", "loss", "score", "measure")
# Modules whose lines say nothing about an error of the user.
HIDDEN_MODULES = ("ltp_pipeline", "importlib", "contextlib")
TASK_NAME = "task"  # object of a file that is the task; without it, the file's functions are
UNNAMED_METRIC = Metric("score", is_fraction=False)


class CustomDataset(Protocol):
    """Samples by number, such as a torch Dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return inputs of the model by name, and what loss and metric need."""


class CustomMetric(Protocol):
    """A metric that is no mean over samples, such as those of torchmetrics."""

    def update(self, outputs: Values, batch: Values) -> None:
        """Add a batch."""

    def compute(self) -> float | Tensor:
        """Return the metric of all batches so far."""


class CustomTaskProtocol(Protocol):
    """The parts that a custom task may have; only `dataset` is required.

    Without `loss`, the network is distilled from the original. Without `score` and `measure`, it
    is compared with the original.

    Attributes:
        metric: Name and unit of the score, and whether higher is better.
        fingerprint: Text that changes when the task does; for a file, its hash is added.
    """

    metric: Metric
    fingerprint: str

    def dataset(self, split: str) -> CustomDataset | None:
        """Return the samples of "train", "val" or "test"; None if the split does not exist."""

    def loss(self, outputs: Values, batch: Values) -> Tensor:
        """Return the loss of a batch, one number."""

    def score(self, outputs: Values, batch: Values) -> Tensor:
        """Return the score of each sample of a batch; the metric is their mean."""

    def measure(self) -> CustomMetric:
        """Return a new metric, which replaces `score`."""


@dataclass(frozen=True)
class CustomTask:
    """The user's own task.

    Attributes:
        code: Object or module with the functions.
        origin: Name of the task in messages.
        sha256: Hash of its file; None for an object.
    """

    code: Any
    origin: str
    sha256: str | None = None

    @classmethod
    def load(cls, task: Any) -> CustomTask:
        """Return the task of a path or an object.

        Raises:
            InputError: The task has parts of a wrong kind.
            TaskFailed: The file cannot be executed.
        """
        if isinstance(task, CustomTask):
            return task
        if isinstance(task, str | Path):
            return _load_file(Path(task))
        name = task.__name__ if isinstance(task, type) else type(task).__name__
        return _check_parts(cls(task, f"the task {name}"))

    @property
    def declared_fingerprint(self) -> str | None:
        """The fingerprint that the code declares."""
        fingerprint = getattr(self.code, "fingerprint", None)
        return None if fingerprint is None else str(fingerprint)

    @property
    def fingerprint(self) -> str | None:
        """Text that distinguishes the task from others; None for an object that declares none."""
        if self.sha256 is not None:
            return f"file {self.sha256} {self.declared_fingerprint or ''}".rstrip()
        return None if self.declared_fingerprint is None else f"object {self.declared_fingerprint}"

    @property
    def metric(self) -> Metric:
        """Name, unit and direction of the score."""
        metric = getattr(self.code, "metric", None)
        return UNNAMED_METRIC if metric is None else metric

    def has_function(self, name: str) -> bool:
        """Return True if the task has a function."""
        return callable(getattr(self.code, name, None))

    def call_function(self, name: str, *args: Any, seed_parts: tuple[int | str, ...]) -> Any:
        """Call a function of the task; its random numbers depend on `seed_parts` alone."""
        with self.report_errors(name), random_state.isolate_rng(*seed_parts):
            return getattr(self.code, name)(*args)

    def report_errors(self, activity: str) -> AbstractContextManager[None]:
        """Return a context in which errors are reported as errors of the user's task."""
        return report_task_errors(f"{activity} of {self.origin} failed", self.origin)


@contextmanager
def report_task_errors(description: str, origin: str) -> Iterator[None]:
    """Raise TaskFailed for errors of the user's code; `description` begins the message."""
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        message = f"{description}: {type(error).__name__}: {error}".removesuffix(": ")
        raise TaskFailed(message, f"correct {origin}", _format_traceback(error)) from error


def to_array(value: Any) -> Array:
    """Return a value of the user's code as an array; tensors may be on any device."""
    import torch

    if isinstance(value, list | tuple) and any(isinstance(v, torch.Tensor) for v in value):
        return np.stack([to_array(v) for v in value])
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = value.float() if value.dtype == torch.bfloat16 else value
    return np.asarray(value)


def is_numeric(array: Array) -> bool:
    """Return True if an array has numbers or booleans, not texts or objects."""
    return array.dtype.kind in "biuf"


def describe_value(value: Any) -> str:
    """Return the kind of an unexpected value for a message."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return {"str": "text", "NoneType": "None"}.get(name, f"a {name}")


def _load_file(path: Path) -> CustomTask:
    """Return the task of a Python file."""
    if not path.is_file():
        raise InputError(f"there is no task file {path}", "correct the path: --task FILE.py")
    spec = importlib.util.spec_from_file_location("ltp_user_task", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file", "pass a file that ends in .py to --task")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # worker processes and dataclasses look for it there
    sys.path.insert(0, str(path.resolve().parent))  # as for a script, modules next to it are found
    with (
        report_task_errors(f"{path.name} cannot be loaded", path.name),
        random_state.isolate_rng("load"),
    ):
        spec.loader.exec_module(module)
    return _check_parts(
        CustomTask(getattr(module, TASK_NAME, module), path.name, sha256_file(path))
    )


def _check_parts(task: CustomTask) -> CustomTask:
    """Return the task; raise InputError if a part of it is of a wrong kind."""
    if isinstance(task.code, type):
        name = task.code.__name__
        raise InputError(
            f"{task.origin}: the task is the class {name}, not an object", f"pass {name}()"
        )
    if not task.has_function("dataset"):
        is_module = isinstance(task.code, ModuleType)
        definition = "define dataset(split)" if is_module else "add a method dataset(split)"
        raise InputError(
            f"{task.origin} has no function dataset",
            f"{definition} that returns the samples of a split (docs/how-to/custom-task.md)",
        )
    for name in FUNCTIONS:
        part = getattr(task.code, name, None)
        if part is not None and not callable(part):
            raise InputError(
                f"{name} of {task.origin} is {describe_value(part)}, not a function",
                f"define the function {name}, or remove {name}",
            )
    if not isinstance(task.metric, Metric):
        raise InputError(
            f"metric of {task.origin} is {describe_value(task.metric)}, not a Metric",
            "set metric = Metric(NAME), from ltp_pipeline; compute it in score or measure",
        )
    return task


def _format_traceback(error: BaseException) -> str:
    """Return the traceback from the first line of the user's code on."""
    trace = error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in HIDDEN_MODULES:
            break
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))
