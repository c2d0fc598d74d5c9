"""Open the data of a model: files, or the user's own data set."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline.data import checks
from ltp_pipeline.data.dataset import (
    ArraySamples,
    Batch,
    DataColumn,
    DatasetSplits,
    Split,
    SplitInput,
)
from ltp_pipeline.data.open import INFERRED_TASK, open_data
from ltp_pipeline.data.preprocessing import format_shape
from ltp_pipeline.data.recipes import get_input_type
from ltp_pipeline.data.splitting import divide_rows
from ltp_pipeline.errors import InputError
from ltp_pipeline.results.schema_parts import InputRecipe
from ltp_pipeline.settings.schema import DataSettings
from ltp_pipeline.tasks.custom_samples import CustomSamples

if TYPE_CHECKING:
    from ltp_pipeline.graph.model_file import ModelFile, TensorInfo
    from ltp_pipeline.settings.schema import TaskSettings
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.custom import CustomTask
    from ltp_pipeline.tasks.custom_samples import Sample

SPLITS = ("train", "val", "test")
INSPECTED_SAMPLES = 256  # samples that show the range of an input's values
# Keys of [data] that have an effect on a custom data set.
USED_SETTINGS = frozenset({"path", "validation_fraction", "num_workers"})


def open_model_data(
    file: ModelFile,
    settings: DataSettings,
    seed: int,
    task_settings: TaskSettings = INFERRED_TASK,
    custom_task: CustomTask | None = None,
) -> DatasetSplits:
    """Return the data of a model, checked against its graph.

    Args:
        file: The model.
        settings: `[data]` of the settings.
        seed: Seed by which samples are divided into splits.
        task_settings: `[task]` of the settings.
        custom_task: The user's own task, which brings its data.

    Raises:
        InputError: The data do not fit the model or the settings.
    """
    table_sizes = checks.find_table_sizes(file.model.graph)
    if custom_task is not None:
        return open_custom_data(custom_task, settings, file.inputs, seed, table_sizes)
    data = open_data(settings, file.inputs, seed, task_settings, file.outputs)
    checks.check_tokens(table_sizes, data)
    return data


def open_custom_data(
    task: CustomTask,
    settings: DataSettings,
    inputs: Sequence[TensorInfo],
    seed: int,
    table_sizes: Mapping[str, int] | None = None,
) -> DatasetSplits:
    """Return the splits of the user's data set; a missing split is split off another.

    Args:
        task: The user's task.
        settings: `[data]` of the settings.
        inputs: Inputs of the model.
        seed: Seed by which samples are split off.
        table_sizes: Number of rows of the embedding table, for each input of tokens.

    Raises:
        InputError: Samples do not fit the model, or settings have no effect on them.
    """
    _check_settings(task, settings)
    sources: dict[str, CustomSamples] = {}
    for name in SPLITS:
        # All splits get the same random numbers, for tasks that shuffle before they divide.
        dataset = task.call_function("dataset", name, seed_parts=(seed,))
        if dataset is not None:
            sources[name] = CustomSamples(task, name, dataset)
        elif name == "train":
            raise InputError(
                f"dataset('train') of {task.origin} is None", "return the training samples"
            )
    groups = {name: np.zeros(len(source), np.int64) for name, source in sources.items()}
    rows, notes = divide_rows(groups, settings.validation_fraction, seed)
    custom_inputs = [CustomInput(info, (table_sizes or {}).get(info.name)) for info in inputs]
    num_workers = settings.num_workers or 0
    splits: dict[str, Split] = {}
    for name, (source, chosen) in rows.items():
        splits[name] = CustomSplit(name, sources[source], custom_inputs, chosen, num_workers)
    if rows["test"] is rows["val"]:
        splits["test"] = splits["val"]
    sizes = " ".join(f"{name} {len(sources[rows[name][0]])}" for name in SPLITS)
    digest = hashlib.sha256(f"{task.fingerprint} {sizes}".encode())
    for name in SPLITS:
        digest.update(splits[name].rows.tobytes())
    return DatasetSplits(
        splits["train"], splits["val"], splits["test"], None, digest.hexdigest(), notes
    )


def _check_settings(task: CustomTask, settings: DataSettings) -> None:
    """Raise InputError for settings of data that a custom task does not use."""
    if settings.path is not None:
        raise InputError(
            f"both a task ({task.origin}) and data ({settings.path}) are set",
            "pass either --task or --data; a path may stand in [data] of ltp.toml",
        )
    defaults = DataSettings()
    for key, value in settings:
        if key not in USED_SETTINGS and value != getattr(defaults, key):
            raise InputError(
                f"{key} in [data] has no effect with a task ({task.origin}), which prepares its "
                "samples itself",
                f"remove {key} from [data], and prepare the samples in dataset",
            )


@dataclass(frozen=True)
class CustomInput:
    """An input of the model that is read from samples of the user's data set.

    Attributes:
        info: Name, type and shape of the input.
        table_size: Number of rows of the model's embedding table; None if the input has no tokens.
    """

    info: TensorInfo
    table_size: int | None = None

    @property
    def name(self) -> str:
        """Name of the input, in the model and in samples."""
        return self.info.name

    @property
    def type(self) -> str:
        """Type of the arrays that the model takes."""
        return get_input_type(self.info)

    def stack_samples(
        self, samples: Sequence[Mapping[str, Array]], rows: Array, origin: str
    ) -> Array:
        """Return the input of some samples as one array of their own type.

        Args:
            samples: The samples.
            rows: Numbers of the samples, for messages.
            origin: Name of the data set, for messages.

        Raises:
            InputError: The model cannot take the samples.
        """
        arrays = _get_arrays(samples, rows, self.name, origin)
        for array, row in zip(arrays, rows, strict=True):
            self._check_array(array, f"{self.name!r} of sample {row} of {origin}")
        shapes = dict.fromkeys(array.shape for array in arrays)
        if len(shapes) > 1:
            raise InputError(
                f"samples of {origin} have different shapes of {self.name!r}: "
                f"{' and '.join(map(str, shapes))}",
                "pad them to one shape",
            )
        stacked = np.stack(arrays)
        column = DataColumn(ArraySamples(stacked), f"{self.name!r} of {origin}")
        checks.check_values(column, np.dtype(self.type), rows)
        if self.table_size is not None:
            checks.check_table_rows(self.name, column.samples, self.table_size, rows)
        return stacked

    def _check_array(self, array: Array, description: str) -> None:
        """Raise InputError if an array has no numbers, or another shape than the model takes."""
        if array.dtype.kind not in checks.NUMBER_KINDS:
            raise InputError(
                f"{description} has type {array.dtype}, not numbers",
                "return numbers for the inputs of the model",
            )
        shape = array.shape if self.info.shape is None else self.info.shape[1:]
        fits = len(shape) == array.ndim
        if fits:
            sizes = zip(array.shape, shape, strict=True)
            fits = all(size == n for size, n in sizes if isinstance(n, int))
        if not fits:
            raise InputError(
                f"{description} has shape {format_shape(array.shape)}, and the model takes "
                f"{format_shape(shape)}",
                "return one sample as the model takes it, without the batch axis",
            )


class CustomSplit(Split):
    """Some rows of the user's data set."""

    @property
    def task(self) -> CustomTask:
        """The task that the data set belongs to."""
        return self._source.task

    def __init__(
        self,
        name: str,
        source: CustomSamples,
        inputs: Sequence[CustomInput],
        rows: Array,
        num_workers: int = 0,
    ) -> None:
        """Select rows of a data set, and check the first of them.

        Args:
            name: Name of the split.
            source: The data set.
            inputs: Inputs of the model.
            rows: Numbers of the samples.
            num_workers: Number of worker processes; 0 reads in the main process.
        """
        self._source = source
        self._inputs = inputs
        first = source.read(rows[:1], None)
        columns: dict[str, SplitInput] = {}
        for model_input in inputs:
            model_input.stack_samples(first, rows[:1], source.origin)
            column = CustomInputColumn(source, model_input, first[0][model_input.name])
            columns[model_input.name] = SplitInput(column, InputRecipe(type=model_input.type))
        super().__init__(name, columns, {}, rows, num_workers)

    def count_workers(self, is_augmented: bool) -> int:  # noqa: ARG002 - the data set decides
        """Return the number of worker processes; 0 reads in the main process."""
        return self.num_workers

    def fetch(self, rows: Array, augment_seed: int | None, num_threads: int = 1) -> list[Sample]:  # noqa: ARG002
        """Read samples in this thread: random generators belong to all threads of a process."""
        return self._source.reader.read_rows(rows, augment_seed)

    @property
    def fetch_in_worker(self) -> Callable[[Array, int | None], list[Sample]]:
        """Function that worker processes call, without the task, which may not be picklable."""
        return self._source.reader.read_rows

    def make_batch(self, rows: Array, fetched: Any) -> Batch:
        """Return a batch: inputs stacked, and as targets all arrays of the samples."""
        self._source.check_samples(rows, fetched)
        origin = self._source.origin
        inputs: dict[str, Array] = {}
        for model_input in self._inputs:
            stacked = model_input.stack_samples(fetched, rows, origin)
            inputs[model_input.name] = np.ascontiguousarray(stacked, model_input.type)
        targets: dict[str, Array | list[Array]] = {}
        for name in fetched[0]:
            if name not in inputs:
                targets[name] = _stack_if_equal(_get_arrays(fetched, rows, name, origin))
        return Batch(inputs, {**targets, **inputs})


class CustomInputColumn:
    """One input of the user's samples, for code that looks at inputs one by one."""

    def __init__(self, source: CustomSamples, model_input: CustomInput, first: Array) -> None:
        """Read `model_input` from `source`; `first` is the input of the first sample."""
        self._source = source
        self._input = model_input
        self.shape: tuple[int | None, ...] = first.shape
        self.dtype: np.dtype[Any] = first.dtype

    def __len__(self) -> int:
        return len(self._source)

    def read_some(self) -> ArraySamples:
        """Return the first samples, which show the range of values: reading all may take long."""
        return ArraySamples(self.take(np.arange(min(INSPECTED_SAMPLES, len(self)))))

    def take(self, indices: Array) -> Array:
        """Return the input of these samples."""
        samples = self._source.read(indices, None)
        return self._input.stack_samples(samples, indices, self._source.origin)


def _get_arrays(
    samples: Sequence[Mapping[str, Array]], rows: Array, name: str, origin: str
) -> list[Array]:
    """Return an array of each sample by name; raise InputError if a sample does not have it."""
    for sample, row in zip(samples, rows, strict=True):
        if name not in sample:
            raise InputError(
                f"sample {row} of {origin} has no {name!r}; it has {', '.join(map(repr, sample))}",
                "return the inputs of the model under their names, for every sample",
            )
    return [sample[name] for sample in samples]


def _stack_if_equal(arrays: list[Array]) -> Array | list[Array]:
    """Return arrays as one if they have equal shapes, else as the list."""
    is_equal = all(array.shape == arrays[0].shape for array in arrays)
    return np.stack(arrays) if is_equal else arrays
