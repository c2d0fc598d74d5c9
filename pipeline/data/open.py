"""Data sets opened for a model: format, columns, preprocessing, checks and splits."""

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ltp_pipeline.data import checks, limits
from ltp_pipeline.data.columns import list_class_names, renumber_classes
from ltp_pipeline.data.dataset import (
    NUM_THREADS,
    TARGET,
    TRAIN,
    ClassNumbers,
    DataColumn,
    DatasetSplits,
    LoadOptions,
    NonNumericColumn,
    Part,
    RawDataset,
    Split,
    SplitInput,
)
from ltp_pipeline.data.formats import idx, image_folder, npy_folder, npz, shards, tables
from ltp_pipeline.data.images.collection import ImageSamples
from ltp_pipeline.data.matching import PADDING_WORD, ColumnMatch, match_columns
from ltp_pipeline.data.recipes import choose_load_options, decide_recipe
from ltp_pipeline.data.sequences import MaskSamples, RaggedSamples, can_hold
from ltp_pipeline.data.splitting import divide_rows
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.results.schema_parts import InputRecipe
from ltp_pipeline.settings.schema import DataSettings, InputSettings, TaskSettings
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.text import make_printable

INFERRED_TASK = TaskSettings()  # the task is inferred from labels and outputs
FLOAT_SETTINGS = {"scale": None, "mean": (), "std": (), "resize": None}  # none for integer inputs


class DataFormat(NamedTuple):
    """A format of stored samples."""

    description: str
    can_read: Callable[[Path], bool]
    read_dataset: Callable[[Path, LoadOptions], RawDataset]


FORMATS = (
    DataFormat("a .npz file", npz.can_read, npz.read_dataset),
    DataFormat("a folder of .npy files", npy_folder.can_read, npy_folder.read_dataset),
    DataFormat(
        "a Parquet file, or a folder that `datasets` saved", tables.can_read, tables.read_dataset
    ),
    DataFormat(
        "a folder with IDX files (train-images-idx3-ubyte, ...)", idx.can_read, idx.read_dataset
    ),
    DataFormat("a folder of WebDataset shards (.tar)", shards.can_read, shards.read_dataset),
    DataFormat(
        "a folder of class folders with images", image_folder.can_read, image_folder.read_dataset
    ),
)


class OpenPart(NamedTuple):
    """A part of the data by the inputs of the model and the target."""

    columns: Mapping[str, DataColumn]
    target: DataColumn | None

    @property
    def labels(self) -> Array | None:
        """Class number of each sample; None if the target is something else."""
        if self.target is None or not isinstance(self.target.samples, ClassNumbers):
            return None
        return self.target.samples.array

    @property
    def groups(self) -> Array:
        """Groups that are divided evenly among splits: classes, or one group of all samples."""
        if self.labels is not None:
            return self.labels
        return np.zeros(len(next(iter(self.columns.values())).samples), np.int64)


def open_data(
    settings: DataSettings,
    inputs: Sequence[TensorInfo],
    seed: int,
    task: TaskSettings = INFERRED_TASK,
    outputs: Sequence[TensorInfo] = (),
) -> DatasetSplits:
    """Open the samples of each input, check them against the model, and divide them into splits.

    Args:
        settings: Path and preprocessing of the data.
        inputs: Inputs of the model.
        seed: Seed for the division into splits.
        task: Name of the target column, and the output that the labels belong to.
        outputs: Outputs of the model.

    Raises:
        InputError: If the data cannot be read, or the model cannot take them.
    """
    _check_input_names(settings, inputs)
    raw = _read_dataset(settings.path, choose_load_options(settings, inputs))
    first_part = next(iter(raw.parts.values()))
    match = match_columns(first_part, inputs, task, allow_unused=raw.is_table)
    _check_same_columns(raw.parts, match)
    parts = {
        name: _open_part(part, match, raw, settings, inputs, task)
        for name, part in raw.parts.items()
    }
    recipes = _decide_recipes(next(iter(parts.values())), match, raw, settings, inputs)
    labeled_outputs = [output for output in outputs if task.output in (None, output.name)]
    for part in parts.values():
        _check_part(part, recipes, settings, inputs, labeled_outputs)
    groups = {name: part.groups for name, part in parts.items()}
    rows, split_notes = divide_rows(groups, settings.validation_fraction, seed)
    splits = {
        name: _make_split(name, parts[source], chosen, recipes, settings)
        for name, (source, chosen) in rows.items()
    }
    if rows["test"] is rows["val"]:
        splits["test"] = splits["val"]
    digest = hashlib.sha256(raw.fingerprint.encode())
    for name in ("train", "val", "test"):
        digest.update(f"{name} {rows[name][0]} ".encode() + splits[name].rows.tobytes())
    notes = [*raw.notes, *_describe_unused(first_part, match.unused), *split_notes]
    class_names = list_class_names(settings.classes) if settings.classes else raw.class_names
    return DatasetSplits(
        splits["train"],
        splits["val"],
        splits["test"],
        num_classes=_count_classes(parts.values()),
        fingerprint=digest.hexdigest(),
        notes=tuple(make_printable(note) for note in notes),
        class_names=class_names,
    )


def would_read_folder(path: Path, folder: Path) -> bool:
    """Return whether a new folder at a place would be read as a part of the data at `path`."""
    with _explain_read_errors(path):
        if not path.is_dir():
            return False
        data_format = next((f for f in FORMATS if f.can_read(path)), None)
        if data_format is None or data_format.read_dataset is not image_folder.read_dataset:
            return False
        return image_folder.would_read_folder(path, folder)


def count_workers(num_workers: int | None) -> int:
    """Return the number of worker processes for image files, by rule if it is not set.

    Workers are started by a fork, which needs Linux. Elsewhere they start only on request: they
    would run a script that has no `if __name__ == "__main__"` a second time.
    """
    if num_workers is not None:
        return num_workers
    return NUM_THREADS if sys.platform == "linux" else 0


def _check_input_names(settings: DataSettings, inputs: Sequence[TensorInfo]) -> None:
    """Raise InputError if settings name an input that the model does not have."""
    names = [info.name for info in inputs]
    unknown = [name for name in settings.inputs if name not in names]
    if unknown:
        raise InputError(
            f"[data.inputs] has a section for {unknown[0]!r}, which is not an input of the model",
            f"use the name of one of its inputs: {', '.join(map(repr, names))}",
        )


def _read_dataset(path: Path | None, options: LoadOptions) -> RawDataset:
    """Read the data at a path in the first format that fits."""
    if path is None:
        raise InputError(
            "no data were passed",
            "pass --data PATH, set path in [data] of an ltp.toml next to the model, or pass"
            " --config FILE; `ltp-pipeline demo` needs no data",
        )
    with _explain_read_errors(path):
        if not path.exists():
            raise InputError(f"there is no data at {path}", "check --data, or path in [data]")
        for data_format in FORMATS:
            if data_format.can_read(path):
                raw = data_format.read_dataset(path, options)
                for name in {name for part in raw.parts.values() for name in part}:
                    limits.check_name_encoding(name, f"a column of {path},")
                return raw
    formats = ", or ".join(data_format.description for data_format in FORMATS)
    raise InputError(f"{path} is in no format that can be read", f"use {formats}")


@contextmanager
def _explain_read_errors(path: Path) -> Iterator[None]:
    """Raise InputError for errors of the system while data are read."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot read data {path}: {error.strerror or error}",
            "check the file and its permissions",
        ) from None
    except MemoryError:
        raise InputError(
            f"data {path} do not fit in memory", "use fewer samples, or images in class folders"
        ) from None


def _check_same_columns(parts: Mapping[str, Part], match: ColumnMatch) -> None:
    """Raise InputError if parts differ in their columns, or in the shape of their samples."""
    first, *others = parts.values()
    names = list(match.inputs.values())
    if match.target is not None:
        names.append(match.target)
    for part in others:
        for name in names:
            column, other = first[name], part.get(name)
            if other is None:
                raise InputError(
                    f"{column.origin} is in one split, but not in all splits",
                    "store the same columns for all splits",
                )
            if other.samples.shape != column.samples.shape:
                raise InputError(
                    f"samples of all splits must have one shape, but those of {column.origin} have"
                    f" {column.samples.shape} and those of {other.origin} {other.samples.shape}",
                    "store samples of one shape in all splits",
                )


def _open_part(
    part: Part,
    match: ColumnMatch,
    raw: RawDataset,
    settings: DataSettings,
    inputs: Sequence[TensorInfo],
    task: TaskSettings,
) -> OpenPart:
    """Return the columns of a part for the inputs of the model, with padding and masks."""
    target = None if match.target is None else part[match.target]
    matched = [part[name] for name in match.inputs.values()]
    checks.check_sizes([*matched, *([] if target is None else [target])])
    columns: dict[str, DataColumn] = {}
    for info in inputs:
        if info.name in match.inputs:
            column = part[match.inputs[info.name]]
            columns[info.name] = _pad_column(column, info, settings, len(inputs) == 1)
    for name in match.masks:
        columns[name] = _make_mask(columns[_find_masked_input(match, name)], name)
    if target is not None:
        target = _convert_target(target, raw, settings, task)
    elif settings.classes:
        raise InputError(
            "classes is set in [data], but the samples have no labels", "remove classes"
        )
    return OpenPart(columns, target)


def _pad_column(
    column: DataColumn, info: TensorInfo, settings: DataSettings, is_only_input: bool
) -> DataColumn:
    """Return a column; sequences of uneven length get the padding that the model needs."""
    samples = column.samples
    if not isinstance(samples, RaggedSamples):
        return column
    dim = info.shape[1] if info.shape is not None and len(info.shape) > 1 else None
    width = dim if isinstance(dim, int) and dim > 0 else None
    lengths = np.diff(samples.offsets)
    if width is not None and lengths.max() > width:
        row = int(np.argmax(lengths > width))
        raise InputError(
            f"the model's input {info.name!r} takes sequences of up to {width} values, but sample"
            f" {row} of {column.origin} has {lengths[row]}",
            f"shorten sequences to {width}",
        )
    pad = settings.for_input(info.name).padding_value
    if not can_hold(samples.dtype, pad):
        section = settings.section_name(info.name, is_only_input)
        raise InputError(
            f"{column.origin} holds {samples.dtype}, which cannot hold the padding value {pad:g}",
            f"set padding_value in {section} to a value of that type, or store another type",
        )
    return DataColumn(samples.with_padding(width, pad), column.origin)


def _find_masked_input(match: ColumnMatch, mask: str) -> str:
    """Return the name of the input whose sequences a mask belongs to."""
    return next(name for name, column in match.inputs.items() if column == match.masks[mask])


def _make_mask(column: DataColumn, name: str) -> DataColumn:
    """Return the mask of a column of sequences; its name tells whether it marks padding."""
    assert isinstance(column.samples, RaggedSamples)  # noqa: S101 - masks belong to sequences
    mask = MaskSamples(column.samples, marks_padding=PADDING_WORD in name.lower())
    return DataColumn(mask, f"the mask of {column.origin}")


def _convert_target(
    column: DataColumn, raw: RawDataset, settings: DataSettings, task: TaskSettings
) -> DataColumn:
    """Return the target with the class numbers of the model, and with padding."""
    samples = checks.convert_target(column)
    if isinstance(samples, RaggedSamples):
        # Only a wide integer can hold the index that is ignored.
        dtype = np.dtype(np.int64) if samples.dtype.kind in "biu" else None
        samples = samples.with_padding(None, task.ignore_index, dtype)
    if not settings.classes:
        return DataColumn(samples, column.origin)
    if not isinstance(samples, ClassNumbers):
        raise InputError(
            f"classes is set in [data], but {column.origin} holds no class numbers",
            "remove classes",
        )
    numbers = renumber_classes(samples.array, raw.class_names, settings.classes, column.origin)
    return DataColumn(ClassNumbers(numbers), column.origin)


def _decide_recipes(
    part: OpenPart,
    match: ColumnMatch,
    raw: RawDataset,
    settings: DataSettings,
    inputs: Sequence[TensorInfo],
) -> dict[str, InputRecipe]:
    """Decide the preprocessing of each input by the samples of one part."""
    recipes = {}
    for info in inputs:
        column = part.columns[info.name]
        samples = column.samples
        section = settings.section_name(info.name, len(inputs) == 1)
        input_settings = _choose_input_settings(settings, info, match, len(inputs) == 1)
        layout = raw.layout or input_settings.layout
        recipe = decide_recipe(column.origin, samples.shape, layout, input_settings, info, section)
        if isinstance(samples, ImageSamples):
            recipe = recipe.model_copy(update={"image": samples.form})
        elif isinstance(samples, RaggedSamples):
            recipe = recipe.model_copy(update={"pad": samples.pad})
        elif isinstance(samples, MaskSamples):
            masked = _find_masked_input(match, info.name)
            update = {"mask_of": masked, "marks_padding": samples.marks_padding}
            recipe = recipe.model_copy(update=update)
        recipes[info.name] = recipe
    return recipes


def _choose_input_settings(
    settings: DataSettings, info: TensorInfo, match: ColumnMatch, is_only_input: bool
) -> InputSettings:
    """Return the settings of an input.

    Settings for all inputs do not scale integers, unless there is one input only, and do not apply
    to masks.
    """
    section = settings.inputs.get(info.name)
    own_keys = set() if section is None else section.model_fields_set
    if info.name in match.masks:
        if own_keys:
            raise InputError(
                f"{', '.join(sorted(own_keys))} is set for the mask {info.name!r}, "
                "which is computed",
                f"remove {settings.section_name(info.name, is_only_input)}, or store the mask",
            )
        return InputSettings()
    input_settings = settings.for_input(info.name)
    if is_only_input or "FLOAT" in info.type or info.type == "DOUBLE":
        return input_settings
    update = {key: value for key, value in FLOAT_SETTINGS.items() if key not in own_keys}
    return input_settings.model_copy(update=update)


def _check_part(
    part: OpenPart,
    recipes: Mapping[str, InputRecipe],
    settings: DataSettings,
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
) -> None:
    """Raise InputError if the model cannot take a sample of a part."""
    for name, column in part.columns.items():
        checks.check_values(column, np.dtype(recipes[name].type))
        checks.check_crop(column, settings.crop)
    if settings.augment:
        checks.check_augmentation(list(part.columns.values()), part.target)
    axes = checks.measure_named_axes(part.columns, recipes, inputs)
    checks.check_input_lengths(axes)
    checks.check_label_lengths(axes, part.columns, part.target, outputs)


def _make_split(
    name: str,
    part: OpenPart,
    rows: Array,
    recipes: Mapping[str, InputRecipe],
    settings: DataSettings,
) -> Split:
    """Return a split of some rows of a part."""
    inputs = {}
    for input_name, column in part.columns.items():
        samples = column.samples
        if isinstance(samples, ImageSamples):
            samples = samples.select_split(rows, part.labels)
        is_augmented = settings.augment and name == TRAIN
        inputs[input_name] = SplitInput(samples, recipes[input_name], is_augmented)
    targets = {} if part.target is None else {TARGET: part.target.samples}
    return Split(name, inputs, targets, rows, count_workers(settings.num_workers))


def _count_classes(parts: Iterable[OpenPart]) -> int | None:
    """Return the number of classes; None if a part has no class numbers."""
    highest = -1
    for part in parts:
        if part.labels is None:
            return None
        highest = max(highest, int(part.labels.max()))
    return highest + 1


def _describe_unused(part: Part, unused: Sequence[str]) -> list[str]:
    """Return notes about columns that are not used."""
    names: dict[str, list[str]] = {"hold no numbers": [], "no input takes": []}
    for name in unused:
        is_text = isinstance(part[name].samples, NonNumericColumn)
        names["hold no numbers" if is_text else "no input takes"].append(name)
    return [
        f"columns that {reason} are not used: {', '.join(columns)}"
        for reason, columns in names.items()
        if columns
    ]
