"""Data sets opened for a model: format, columns, preprocessing, checks and splits."""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

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
    FileSamples,
    LoadOptions,
    NonNumericColumn,
    Part,
    RawDataset,
    Split,
    SplitInput,
)
from ltp_pipeline.data.formats import idx, image_folder, npy_folder, npz, shards, tables
from ltp_pipeline.data.images.augment import MOVES
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


# Modules of the formats by their names in messages; the first that fits reads a path.
FORMATS = {
    "a .npz file": npz,
    "a folder of .npy files": npy_folder,
    "a Parquet file, or a folder that `datasets` saved": tables,
    "a folder with IDX files (train-images-idx3-ubyte, ...)": idx,
    "a folder of WebDataset shards (.tar)": shards,
    "a folder of class folders with images": image_folder,
}


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
        first = next(iter(self.columns.values()))
        if self.labels is None:
            return np.zeros(len(first.samples), np.int64)
        return self.labels


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
    opener = PartOpener(raw, match, settings, inputs, task)
    parts = {name: opener.open_part(part) for name, part in raw.parts.items()}
    recipes = opener.decide_recipes(next(iter(parts.values())))
    labeled_outputs = [output for output in outputs if task.output in (None, output.name)]
    for part in parts.values():
        _check_part(part, recipes, settings, inputs, labeled_outputs)
    groups = {name: part.groups for name, part in parts.items()}
    rows, split_notes = divide_rows(groups, settings.validation_fraction, seed)
    splits = {}
    for name, (source, chosen) in rows.items():
        splits[name] = _make_split(name, parts[source], chosen, recipes, settings)
    if rows["test"] is rows["val"]:
        splits["test"] = splits["val"]
    digest = hashlib.sha256(raw.fingerprint.encode())
    for name in ("train", "val", "test"):
        digest.update(f"{name} {rows[name][0]} ".encode() + splits[name].rows.tobytes())
    notes = [*raw.notes, *_describe_unused(first_part, match.unused), *split_notes]
    class_names = raw.class_names
    if settings.classes:
        class_names = list_class_names(settings.classes)
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
        if not path.is_dir() or _find_format(path) is not image_folder:
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
        data_format = _find_format(path)
        if data_format is None:
            raise InputError(
                f"{path} is in no format that can be read", f"use {', or '.join(FORMATS)}"
            )
        raw: RawDataset = data_format.read_dataset(path, options)
        for part in raw.parts.values():
            for name in part:
                limits.check_name_encoding(name, f"a column of {path},")
        return raw


def _find_format(path: Path) -> ModuleType | None:
    """Return the module of the first format that fits."""
    return next((module for module in FORMATS.values() if module.can_read(path)), None)


@contextmanager
def _explain_read_errors(path: Path) -> Iterator[None]:
    """Raise InputError for errors of the system while data are read."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot read data {error.filename or path}: {error.strerror or error}",
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


class PartOpener(NamedTuple):
    """Makes the inputs of the model and the target of the columns of a data set."""

    raw: RawDataset
    match: ColumnMatch
    settings: DataSettings
    inputs: Sequence[TensorInfo]
    task: TaskSettings

    def open_part(self, part: Part) -> OpenPart:
        """Return the columns of a part for the inputs of the model, with padding and masks."""
        sources = {name: part[column] for name, column in self.match.inputs.items()}
        matched = list(sources.values())
        target = None
        if self.match.target is not None:
            target = part[self.match.target]
            matched.append(target)
        checks.check_sizes(matched)
        columns = {}
        for info in self.inputs:
            if info.name in sources:
                columns[info.name] = self._pad_column(sources[info.name], info)
        for mask, name in self.match.masks.items():
            sequences, origin = columns[name].samples, columns[name].origin
            assert isinstance(sequences, RaggedSamples)  # noqa: S101 - masks belong to sequences
            samples = MaskSamples(sequences, marks_padding=PADDING_WORD in mask.lower())
            columns[mask] = DataColumn(samples, f"the mask of {origin}")
        if target is not None:
            target = self._convert_target(target)
        elif self.settings.classes:
            raise InputError(
                "classes is set in [data], but the samples have no labels", "remove classes"
            )
        return OpenPart(columns, target)

    def decide_recipes(self, part: OpenPart) -> dict[str, InputRecipe]:
        """Decide the preprocessing of each input by the samples of one part."""
        recipes = {}
        for info in self.inputs:
            samples, origin = part.columns[info.name].samples, part.columns[info.name].origin
            settings = self._choose_settings(info)
            layout = self.raw.layout or settings.layout
            section = self._name_section(info)
            recipe = decide_recipe(origin, samples.shape, layout, settings, info, section)
            update: dict[str, Any] = {}
            if isinstance(samples, ImageSamples):
                update = {"image": samples.form}
            elif isinstance(samples, RaggedSamples):
                update = {"pad": samples.pad}
            elif isinstance(samples, MaskSamples):
                masked = self.match.masks[info.name]
                update = {"mask_of": masked, "marks_padding": samples.marks_padding}
            recipes[info.name] = recipe.model_copy(update=update)
        return recipes

    def _name_section(self, info: TensorInfo) -> str:
        """Return the section of ltp.toml with the settings of an input."""
        return self.settings.section_name(info.name, len(self.inputs) == 1)

    def _pad_column(self, column: DataColumn, info: TensorInfo) -> DataColumn:
        """Return a column; sequences of uneven length get the padding that the model needs."""
        samples = column.samples
        if not isinstance(samples, RaggedSamples):
            return column
        width = None
        if info.shape is not None and len(info.shape) > 1:
            dim = info.shape[1]
            if isinstance(dim, int) and dim > 0:
                width = dim
        lengths = np.diff(samples.offsets)
        if width is not None and lengths.max() > width:
            row = int(np.argmax(lengths > width))
            raise InputError(
                f"the model's input {info.name!r} takes sequences of up to {width} values, but"
                f" sample {row} of {column.origin} has {lengths[row]}",
                f"shorten sequences to {width}",
            )
        pad = self.settings.for_input(info.name).padding_value
        if not can_hold(samples.dtype, pad):
            raise InputError(
                f"{column.origin} holds {samples.dtype}, which cannot hold the padding value"
                f" {pad:g}",
                f"set padding_value in {self._name_section(info)} to a value of that type, or store"
                " another type",
            )
        return DataColumn(replace(samples, width=width, pad=pad), column.origin)

    def _convert_target(self, column: DataColumn) -> DataColumn:
        """Return the target with the class numbers of the model, and with padding."""
        samples, origin = checks.convert_target(column), column.origin
        classes = self.settings.classes
        if isinstance(samples, RaggedSamples):
            # Only a wide integer can hold the index that is ignored.
            dtype = np.dtype(np.int64) if samples.dtype.kind in "biu" else None
            samples = replace(samples, pad=self.task.ignore_index, padded_dtype=dtype)
        if classes and not isinstance(samples, ClassNumbers):
            raise InputError(
                f"classes is set in [data], but {origin} holds no class numbers", "remove classes"
            )
        if classes and isinstance(samples, ClassNumbers):
            numbers = renumber_classes(samples.array, self.raw.class_names, classes, origin)
            samples = ClassNumbers(numbers)
        return DataColumn(samples, origin)

    def _choose_settings(self, info: TensorInfo) -> InputSettings:
        """Return the settings of an input.

        Settings for all inputs do not scale integers, unless there is one input only, and do not
        apply to masks.
        """
        section = self.settings.inputs.get(info.name)
        own_keys = set() if section is None else section.model_fields_set
        if info.name in self.match.masks:
            if own_keys:
                raise InputError(
                    f"{', '.join(sorted(own_keys))} is set for the mask {info.name!r}, which is"
                    " computed",
                    f"remove {self._name_section(info)}, or store the mask",
                )
            return InputSettings()
        settings = self.settings.for_input(info.name)
        if len(self.inputs) == 1 or "FLOAT" in info.type or info.type == "DOUBLE":
            return settings
        update = {key: value for key, value in FLOAT_SETTINGS.items() if key not in own_keys}
        return settings.model_copy(update=update)


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
    if settings.augment is True:
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
        is_augmented = settings.augment is True and name == TRAIN
        is_file = isinstance(samples, FileSamples)
        moves = MOVES if is_augmented and not is_file else ()
        recipe = recipes[input_name]
        inputs[input_name] = SplitInput(samples, recipe, is_augmented and is_file, moves)
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
    text = [name for name in unused if isinstance(part[name].samples, NonNumericColumn)]
    numbers = [name for name in unused if name not in text]
    notes = []
    if text:
        notes.append(f"columns that hold no numbers are not used: {', '.join(text)}")
    if numbers:
        notes.append(f"columns that no input takes are not used: {', '.join(numbers)}")
    return notes
