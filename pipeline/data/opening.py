"""The columns of a part as the model takes them: checked, prepared, and with what outputs should be beside them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ltp_pipeline.data.checks import check_samples, checked_target
from ltp_pipeline.data.classes import renumbered
from ltp_pipeline.data.dataset import (
    TARGET,
    ClassNumbers,
    DataColumn,
    Layout,
    Part,
    RawDataset,
    Samples,
    SplitInput,
)
from ltp_pipeline.data.images.augment import augmented, check_crop
from ltp_pipeline.data.images.broken import resilient
from ltp_pipeline.data.images.collection import ImageSamples
from ltp_pipeline.data.matching import PADDING, ColumnMatch
from ltp_pipeline.data.preprocessing import Preparation, decide_preparation, format_shape
from ltp_pipeline.data.sequences import MaskSamples, RaggedSamples, can_hold
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings, InputSettings, TaskSettings
from ltp_pipeline.system.arrays import Array


class InputSource(NamedTuple):
    """What one input of the model is taken from."""

    column: DataColumn
    prepare: Preparation
    layout: Layout

    @property
    def steps(self) -> tuple[str, ...]:
        """From a stored sample to the input, in words, but for scale, mean and std."""
        samples = self.column.samples
        return *(
            samples.steps if isinstance(samples, ImageSamples | RaggedSamples) else ()
        ), *self.prepare.steps


class OpenPart(NamedTuple):
    """A part of the data by inputs and target."""

    sources: Mapping[str, InputSource]
    target: DataColumn | None
    augment: bool

    @property
    def labels(self) -> Array | None:
        """Class numbers, where the target is such."""
        target = None if self.target is None else self.target.samples
        return target.array if isinstance(target, ClassNumbers) else None

    @property
    def groups(self) -> Array:
        """By which samples are divided evenly: classes, or one group."""
        count = len(next(iter(self.sources.values())).column.samples)
        return np.zeros(count, np.int64) if self.labels is None else self.labels

    @property
    def targets(self) -> dict[str, Samples]:
        """By name, for a split."""
        return {} if self.target is None else {TARGET: self.target.samples}

    def inputs_for(self, rows: Array, training: bool) -> dict[str, SplitInput]:
        """How a split with these rows reads each input."""
        inputs = {}
        for name, (column, prepare, layout) in self.sources.items():
            samples = resilient(column.samples, rows, self.labels)
            moved = augmented(column, samples, layout) if self.augment and training else None
            inputs[name] = SplitInput(samples, prepare, moved)
        return inputs


def open_part(
    part: Part,
    found: ColumnMatch,
    stored: RawDataset,
    settings: DataSettings,
    inputs: Sequence[TensorInfo],
    task: TaskSettings,
) -> OpenPart:
    """Check the columns of a part and decide how each is prepared."""
    columns = {name: part[column] for name, column in found.inputs.items()}
    _check_lengths([*columns.values(), *([part[found.target]] if found.target else [])])
    sources: dict[str, InputSource] = {}
    for info in sorted(
        inputs, key=lambda i: i.name in found.masks
    ):  # a mask is made of what another input is fed
        where = settings.section_name(info.name, is_only_input=len(inputs) == 1)
        if info.name in found.masks:
            own, column = _unscaled(settings, info, where), _mask(sources, found, info)
        else:
            own = _settings(settings, info, alone=len(inputs) == 1)
            column = _column(part, found, info, own, where)
        layout = stored.layout or own.layout
        prepare = decide_preparation(column.origin, column.samples.shape, layout, own, info, where)
        sources[info.name] = InputSource(column, prepare, layout)
        check_samples(column, prepare)
        check_crop(column, settings.crop)
    target = None if found.target is None else _target(part[found.target], stored, settings, task)
    if settings.classes and target is None:
        raise InputError(
            "classes is set in [data], and the samples have no labels", "remove classes"
        )
    if settings.augment and target is not None and not isinstance(target.samples, ClassNumbers):
        raise InputError(
            f"augment moves pixels, and what {target.origin} says would not move with them",
            "remove augment",
        )
    return OpenPart(sources, target, settings.augment)


def _column(
    part: Part, found: ColumnMatch, info: TensorInfo, own: InputSettings, where: str
) -> DataColumn:
    """The column of an input; sequences padded as the model wants them."""
    column = part[found.inputs[info.name]]
    if not isinstance(column.samples, RaggedSamples):
        return column
    width = info.shape[1] if info.shape is not None and len(info.shape) > 1 else None
    fixed = width if isinstance(width, int) and width > 0 else None
    lengths = np.diff(column.samples.offsets)
    if fixed is not None and lengths.max() > fixed:
        row = int(np.argmax(lengths > fixed))
        raise InputError(
            f"sample {row} of {column.origin} has length {lengths[row]}, and the model's input {info.name!r} takes "
            f"{fixed}",
            f"cut sequences to {fixed}",
        )
    if not can_hold(column.samples.dtype, own.padding_value):
        raise InputError(
            f"{column.origin} holds {column.samples.dtype}, which cannot be filled up with {own.padding_value:g}",
            f"set padding_value in {where} to a value that it can hold, or store the values as another type",
        )
    return DataColumn(column.samples.with_padding(fixed, own.padding_value), column.origin)


def _mask(sources: Mapping[str, InputSource], found: ColumnMatch, info: TensorInfo) -> DataColumn:
    """Where the sequences of another input have values; where they have none, if it is called so."""
    name = next(name for name, column in found.inputs.items() if column == found.masks[info.name])
    column = sources[name].column
    assert isinstance(column.samples, RaggedSamples)  # noqa: S101 - only of such a mask is made
    return DataColumn(
        MaskSamples(column.samples, PADDING in info.name.lower()), f"the mask of {column.origin}"
    )


def _unscaled(settings: DataSettings, info: TensorInfo, where: str) -> InputSettings:
    """Of a mask that is made: what is said for all is not meant for it."""
    said = settings.inputs[info.name].model_fields_set if info.name in settings.inputs else set()
    if said:
        raise InputError(
            f"{', '.join(sorted(said))} is set for the mask {info.name!r}, which is made",
            f"remove {where}, or give the mask as data",
        )
    return InputSettings()


def _settings(settings: DataSettings, info: TensorInfo, alone: bool) -> InputSettings:
    """Of one input; what is said for all holds for numbers with a fraction: integers pass untouched."""
    own = settings.for_input(info.name)
    if alone or "FLOAT" in info.type or info.type == "DOUBLE":
        return own
    said = settings.inputs[info.name].model_fields_set if info.name in settings.inputs else set()
    untouched = {"scale": None, "mean": (), "std": (), "resize": None}
    return own.model_copy(
        update={key: value for key, value in untouched.items() if key not in said}
    )


def _target(
    column: DataColumn, stored: RawDataset, settings: DataSettings, task: TaskSettings
) -> DataColumn:
    target = checked_target(column)
    if isinstance(target, RaggedSamples):
        whole = (
            np.dtype(np.int64) if target.dtype.kind in "biu" else None
        )  # which holds an ignored label too
        target = target.with_padding(None, task.ignore_index, whole)
    if not settings.classes:
        return DataColumn(target, column.origin)
    if not isinstance(target, ClassNumbers):
        raise InputError(
            f"classes is set in [data], and {column.origin} holds no class numbers",
            "remove classes",
        )
    numbers = renumbered(target.array, stored.class_names, settings.classes, column.origin)
    return DataColumn(ClassNumbers(numbers), column.origin)


def _check_lengths(columns: Sequence[DataColumn]) -> None:
    first = columns[0]
    if not len(first.samples):
        raise InputError(f"{first.origin} is empty", "give samples, or leave the empty part out")
    for column in columns:
        if 0 in column.samples.shape:
            raise InputError(
                f"samples of {column.origin} are empty: their shape is {format_shape(column.samples.shape)}",
                "give samples that hold something",
            )
    for other in columns[1:]:
        if len(other.samples) != len(first.samples):
            raise InputError(
                f"{first.origin} has {len(first.samples)} samples but {other.origin} has {len(other.samples)}",
                "give one row for each sample",
            )
