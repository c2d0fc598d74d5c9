"""Open the data of a model: files, or the user's own data set."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
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
from ltp_pipeline.settings.schema import DataSettings, TaskSettings
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.tasks.custom import CustomTask, is_numeric
from ltp_pipeline.tasks.custom_samples import CustomSamples, Sample

if TYPE_CHECKING:
    from ltp_pipeline.graph.model_file import ModelFile, TensorInfo

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
    splits: dict[str, Split] = {}
    for name, (source, chosen) in rows.items():
        samples = sources[source]
        columns = []
        for info in inputs:
            table_size = (table_sizes or {}).get(info.name)
            columns.append(CustomInput(samples, info, table_size, chosen[:1]))
        splits[name] = CustomSplit(name, samples, columns, chosen, settings.num_workers or 0)
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
            "pass either --task or --data; [data] of ltp.toml may also set path",
        )
    defaults = DataSettings()
    for key, value in settings:
        if key not in USED_SETTINGS and value != getattr(defaults, key):
            raise InputError(
                f"{key} in [data] has no effect with a task ({task.origin}), which prepares its "
                "samples itself",
                f"remove {key} from [data], and prepare the samples in dataset",
            )


class CustomInput:
    """An input of the model, read from the user's samples."""

    def __init__(
        self, source: CustomSamples, info: TensorInfo, table_size: int | None, first_row: Array
    ) -> None:
        """Read an input, and check the first sample.

        `table_size` is the number of rows of the model's embedding table, None without tokens.
        """
        self.name = info.name
        self.type = get_input_type(info)
        self._source = source
        self._info = info
        self._table_size = table_size
        first = self.take(first_row)
        self.shape: tuple[int | None, ...] = first.shape[1:]
        self.dtype: np.dtype[Any] = first.dtype

    def __len__(self) -> int:
        return len(self._source)

    def read_some(self) -> ArraySamples:
        """Return the first samples, which show the range of values: reading all may take long."""
        return ArraySamples(self.take(np.arange(min(INSPECTED_SAMPLES, len(self)))))

    def take(self, indices: Array) -> Array:
        """Return the input of these samples."""
        return self.stack_samples(self._source.read(indices, None), indices)

    def stack_samples(self, samples: Sequence[Sample], rows: Array) -> Array:
        """Return the input of the samples with these numbers as one array of their own type.

        Raises:
            InputError: The model cannot take the samples.
        """
        name = self.name
        origin = self._source.origin
        if name not in samples[0]:
            raise InputError(
                f"sample {rows[0]} of {origin} has no {name!r}; it has "
                f"{', '.join(map(repr, samples[0]))}",
                "return the inputs of the model under their names, for every sample",
            )
        arrays = [sample[name] for sample in samples]
        for array, row in zip(arrays, rows, strict=True):
            self._check_array(array, f"{name!r} of sample {row} of {origin}")
        shapes = dict.fromkeys(array.shape for array in arrays)
        if len(shapes) > 1:
            raise InputError(
                f"samples of {origin} have different shapes of {name!r}: "
                f"{' and '.join(map(str, shapes))}",
                "pad them to one shape",
            )
        stacked = np.stack(arrays)
        column = DataColumn(ArraySamples(stacked), f"{name!r} of {origin}")
        checks.check_values(column, np.dtype(self.type), rows)
        if self._table_size is not None:
            checks.check_table_rows(name, column.samples, self._table_size, rows)
        return stacked

    def _check_array(self, array: Array, description: str) -> None:
        """Raise InputError if an array has no numbers, or another shape than the model takes."""
        if not is_numeric(array):
            raise InputError(
                f"{description} has type {array.dtype}, not numbers",
                "return numbers for the inputs of the model",
            )
        shape = array.shape if self._info.shape is None else self._info.shape[1:]
        fits = len(shape) == array.ndim
        for size, n in zip(array.shape, shape, strict=False):
            fits = fits and (size == n or not isinstance(n, int))
        if not fits:
            raise InputError(
                f"{description} has shape {format_shape(array.shape)}, and the model takes "
                f"{format_shape(shape)}",
                "return one sample as the model takes it, without the batch axis",
            )


class CustomSplit(Split):
    """Some rows of the user's data set."""

    def __init__(
        self,
        name: str,
        source: CustomSamples,
        inputs: Sequence[CustomInput],
        rows: Array,
        num_workers: int = 0,
    ) -> None:
        """Select rows of a data set; `num_workers` 0 reads them in the main process."""
        self.source = source
        self._columns = inputs
        columns = {
            column.name: SplitInput(column, InputRecipe(type=column.type)) for column in inputs
        }
        super().__init__(name, columns, {}, rows, num_workers)

    def count_workers(self, is_augmented: bool) -> int:  # noqa: ARG002 - the data set decides
        """Return the number of worker processes; 0 reads in the main process."""
        return self.num_workers

    def fetch(
        self,
        rows: Array,
        augment_seed: int | None,
        num_threads: int = 1,  # noqa: ARG002 - random generators belong to all threads
    ) -> list[Sample]:
        """Read samples in this thread."""
        return self.source.read_rows(rows, augment_seed)

    @property
    def fetch_in_worker(self) -> Callable[[Array, int | None], list[Sample]]:
        """Function that worker processes call."""
        return self.source.read_rows

    def make_batch(self, rows: Array, fetched: list[Sample]) -> Batch:
        """Return a batch: inputs stacked, and as targets all arrays of the samples."""
        self.source.check_samples(rows, fetched)
        inputs: dict[str, Array] = {}
        for column in self._columns:
            stacked = column.stack_samples(fetched, rows)
            inputs[column.name] = np.ascontiguousarray(stacked, column.type)
        targets: dict[str, Array | list[Array]] = {}
        for name in fetched[0]:
            if name not in inputs:
                arrays = [sample[name] for sample in fetched]
                has_one_shape = len({array.shape for array in arrays}) == 1
                targets[name] = np.stack(arrays) if has_one_shape else arrays
        return Batch(inputs, {**targets, **inputs})
