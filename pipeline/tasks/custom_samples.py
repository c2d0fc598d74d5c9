"""Read samples of the user's own data set, in the main process or in worker processes.

Random numbers that the data set uses for a sample depend only on the seed and on the sample's
number. So a resumed run sees the samples of a run that was never interrupted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.system import random_state
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.tasks.custom import (
    CustomTask,
    describe_value,
    is_numeric,
    report_task_errors,
    to_array,
)

Sample = dict[str, Array]


class CustomSamples:
    """Samples of a split of the user's data set, by number.

    The task is not kept: worker processes get this object, and a task may not be picklable.
    """

    def __init__(self, task: CustomTask, split: str, dataset: Any) -> None:
        """Read what the task's `dataset` returns for a split; raise InputError if it is empty."""
        self.dataset = dataset
        self.origin = f"dataset({split!r}) of {task.origin}"
        self.task_origin = task.origin
        self.task_fingerprint = task.fingerprint
        self._names: frozenset[str] | None = None  # arrays that every sample has
        with task.report_errors(f"len of dataset({split!r})"):
            self._count = len(dataset)
        if not self._count:
            raise InputError(f"{self.origin} is empty", "return samples, or None")

    def __len__(self) -> int:
        return self._count

    def read(self, rows: Array, seed: int | None) -> list[Sample]:
        """Return samples by number in the main process, after they are checked."""
        samples = self.read_rows(rows, seed)
        self.check_samples(rows, samples)
        return samples

    def read_rows(self, rows: Array, seed: int | None) -> list[Sample]:
        """Return samples by number; with another seed, the data set may augment differently."""
        with random_state.isolate_rng():
            return [self._read_row(row, seed or 0) for row in rows.tolist()]

    def _read_row(self, row: int, seed: int) -> Sample:
        """Return a sample; its random numbers depend on `seed` and `row`."""
        name = f"sample {row} of {self.origin}"
        random_state.seed_all(seed, row)
        with report_task_errors(f"reading {name} failed", self.task_origin):
            sample = self.dataset[row]
        if not isinstance(sample, Mapping):
            raise InputError(
                f"{name} is {describe_value(sample)}, not a dict",
                "return a dict of arrays by name",
            )
        return {str(key): to_array(value) for key, value in sample.items()}

    def check_samples(self, rows: Array, samples: Sequence[Sample]) -> None:
        """Raise InputError if a sample has other names than the first, or no numbers."""
        for row, sample in zip(rows, samples, strict=True):
            self._check_sample(f"sample {row} of {self.origin}", sample)

    def _check_sample(self, description: str, sample: Sample) -> None:
        if self._names is None:
            self._names = frozenset(sample)
        for name in sorted(self._names ^ set(sample)):
            if name in self._names:
                message = f"has no {name!r}; it has {', '.join(map(repr, sample))}"
            else:
                message = f"has {name!r}, which other samples do not have"
            raise InputError(
                f"{description} {message}",
                "return the same names for every sample, with an empty array if there is nothing",
            )
        for name, values in sample.items():
            if not is_numeric(values):
                raise InputError(
                    f"{name!r} of {description} has type {values.dtype}, not numbers",
                    "return numbers; for a text, return its position in a list of your own",
                )
