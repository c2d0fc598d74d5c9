"""Values, lengths and tokens that a model cannot take, found before training."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ltp_pipeline.data.dataset import (
    ArraySamples,
    ClassNumbers,
    DataColumn,
    DatasetSplits,
    FileSamples,
    Samples,
)
from ltp_pipeline.data.preprocessing import compute_input_shape, format_shape
from ltp_pipeline.data.sequences import MaskSamples, RaggedSamples
from ltp_pipeline.errors import InputError, summarize_error
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.results.schema_parts import InputRecipe
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.text import pluralize

if TYPE_CHECKING:
    from onnx import GraphProto

CHUNK_BYTES = 16 * 2**20
NUMBER_KINDS = "biuf"  # kinds of numpy types that samples have
MAX_CLASS = np.iinfo(np.int32).max
MAX_EXACT_FLOAT = 2**53  # a double holds every integer below; larger ones are names and hashes
MAX_INTEGER = np.iinfo(np.int64).max  # torch computes with no larger integers
LARGE_INTEGER_BYTES = 8  # integers of this size may exceed both limits
MIN_AGREEING_FRACTION = 1 / 2  # of samples whose number of labels tells the input they belong to
NUMBERS_HINT = "store the samples as numbers"
REPAIR_HINT = "remove or repair samples with NaN or inf"
SAME_VALUES = ("Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten")


def iter_chunks(samples: Samples) -> Iterator[tuple[int, Array]]:
    """Read all samples, some megabytes at a time.

    Yields:
        The index of the first row and the rows; of sequences, the rows are their values.
    """
    if isinstance(samples, RaggedSamples):
        samples = ArraySamples(samples.values)
    row_bytes = math.prod(n or 1 for n in samples.shape) * samples.dtype.itemsize
    step = max(1, CHUNK_BYTES // max(1, row_bytes))
    for start in range(0, len(samples), step):
        yield start, samples.take(np.arange(start, min(start + step, len(samples))))


def _find_bad_value(samples: Samples, mark_bad: Callable[[Array], Array]) -> tuple[int, Any] | None:
    """Return the sample with the first value that `mark_bad` marks, and the value, or None."""
    for start, chunk in iter_chunks(samples):
        places = np.argwhere(mark_bad(chunk))
        if len(places):
            row = start + int(places[0, 0])
            if isinstance(samples, RaggedSamples):
                row = samples.find_sample(row)
            return row, chunk[tuple(places[0])]
    return None


def convert_target(column: DataColumn) -> Samples:
    """Return a column of targets as class numbers if it can be, else as it is.

    Raises:
        InputError: If it has values that are not finite numbers.
    """
    samples, origin = column.samples, column.origin
    if samples.dtype.kind not in NUMBER_KINDS:
        raise InputError(
            f"{origin} must be numbers, but holds {samples.dtype}", "number the classes from 0"
        )
    if samples.dtype.kind == "f":
        bad = _find_bad_value(samples, lambda values: ~np.isfinite(values))
        if bad is not None:
            raise InputError(f"{origin} holds {bad[1]} in sample {bad[0]}", REPAIR_HINT)
    if samples.shape not in ((), (1,)):
        return samples
    values = samples.take(np.arange(len(samples))).reshape(-1)
    is_integer = values.dtype.kind != "f" or bool((values == np.rint(values)).all())
    is_class = is_integer and bool((values >= 0).all() and (values <= MAX_CLASS).all())
    return ClassNumbers(values.astype(np.int64)) if is_class else ArraySamples(values)


def check_sizes(columns: Sequence[DataColumn]) -> None:
    """Raise InputError if columns are empty or differ in their number of samples."""
    first = columns[0]
    if not len(first.samples):
        raise InputError(f"{first.origin} is empty", "add samples, or leave the empty part out")
    for column in columns:
        if 0 in column.samples.shape:
            shape = format_shape(column.samples.shape)
            raise InputError(
                f"samples of {column.origin} hold no values: their shape is {shape}",
                "store samples with at least one value",
            )
        if len(column.samples) != len(first.samples):
            raise InputError(
                f"{first.origin} has {len(first.samples)} samples, but {column.origin} has"
                f" {len(column.samples)}",
                "store one row for each sample",
            )


def check_values(column: DataColumn, dtype: np.dtype[Any], rows: Array | None = None) -> None:
    """Raise InputError if the type of an input cannot hold a value of its samples.

    Args:
        column: Samples of the input.
        dtype: Type of the input.
        rows: Number of each sample in messages; None to count them.
    """
    samples = column.samples
    if samples.dtype.kind not in NUMBER_KINDS:
        raise InputError(
            f"{column.origin} must be numbers, but holds {samples.dtype}", NUMBERS_HINT
        )
    if _holds_all_values(samples.dtype, dtype):
        return
    bad = _find_bad_value(samples, partial(_mark_lost_values, dtype=dtype))
    if bad is None:
        return
    sample, value = bad
    if rows is not None:
        sample = rows[sample]
    message = f"{column.origin} holds {value} in sample {sample}"
    if not np.isfinite(value):
        raise InputError(message, REPAIR_HINT)
    raise InputError(
        f"{message}, which the model's input of type {dtype} cannot hold exactly",
        "store values of the type that the model takes",
    )


def _mark_lost_values(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return a mask of values that are not finite, or that an input of this type cannot hold."""
    with np.errstate(over="ignore", invalid="ignore"):
        converted = values.astype(dtype)
        is_lost: Array = ~np.isfinite(converted) if dtype.kind == "f" else converted != values
    if values.dtype.kind in "iu":
        largest = MAX_EXACT_FLOAT if dtype.kind == "f" else MAX_INTEGER
        is_lost |= (values > largest) | (values < -largest - 1)
    return is_lost


def _holds_all_values(stored: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether an input of a type can hold every value of a stored type."""
    if dtype.kind == "f":
        return stored.kind != "f" and stored.itemsize < LARGE_INTEGER_BYTES
    return np.can_cast(stored, dtype, "safe") and stored != np.uint64


def check_crop(column: DataColumn, crop: float | None) -> None:
    """Raise InputError if a crop is set for samples that are not image files."""
    if crop is not None and not isinstance(column.samples, FileSamples):
        raise InputError(
            f"{column.origin}: crop is set, but only images in folders and shards can be cropped",
            "remove crop, or set resize",
        )


def check_augmentation(columns: Sequence[DataColumn], target: DataColumn | None) -> None:
    """Raise InputError if samples cannot be shifted, or would no longer fit their targets."""
    for column in columns:
        if len(column.samples.shape) not in (2, 3):
            raise InputError(
                f"{column.origin}: augment is set, but samples of shape"
                f" {format_shape(column.samples.shape)} are not images",
                "remove augment",
            )
    if target is not None and not isinstance(target.samples, ClassNumbers):
        raise InputError(
            f"augment moves pixels, but {target.origin} is not a class of the whole image",
            "remove augment",
        )


class AxisSizes(NamedTuple):
    """Size of each sample of an input along an axis."""

    name: str  # input
    origin: str  # name of the samples in messages
    sizes: Array
    is_uneven: bool  # sizes are lengths of sequences

    def allows_labels(self, counts: Array) -> Array:
        """Return a mask of the samples whose number of labels is possible."""
        # Which values of an array are padding is unknown.
        allowed: Array = counts == self.sizes if self.is_uneven else counts <= self.sizes
        return allowed


def check_input_lengths(axes: Iterable[tuple[str, AxisSizes]]) -> None:
    """Raise InputError if inputs that share a dimension of the model differ along it."""
    first_sizes: dict[str, AxisSizes] = {}
    for symbol, axis in axes:
        first = first_sizes.setdefault(symbol, axis)
        different = np.flatnonzero(first.sizes != axis.sizes)
        if len(different):
            sample = different[0]
            raise InputError(
                f"the model's inputs {first.name!r} and {axis.name!r} share the dimension"
                f" {symbol!r}, but sample {sample} has {first.sizes[sample]} values in"
                f" {first.origin} and {axis.sizes[sample]} in {axis.origin}",
                "store sequences of the same length for both",
            )


def check_label_lengths(
    axes: Iterable[tuple[str, AxisSizes]],
    columns: Mapping[str, DataColumn],
    target: DataColumn | None,
    outputs: Iterable[TensorInfo],
) -> None:
    """Raise InputError if a sample has not one label for each position.

    The positions are those of an input that shares a dimension with an output. If the model names
    no dimensions, they are those of an input with the same length as labels in most samples.

    Args:
        axes: Names and sizes of the axes of all inputs.
        columns: Samples of each input.
        target: Labels; only sequences of labels are checked.
        outputs: Outputs that the labels may belong to.
    """
    if target is None or not isinstance(target.samples, RaggedSamples):
        return
    counts = np.diff(target.samples.offsets)
    output_symbols = {symbol for info in outputs for symbol in (info.shape or ())[1:]}
    candidates = [axis for symbol, axis in axes if symbol in output_symbols]
    if not candidates:
        for name, column in columns.items():
            if isinstance(column.samples, RaggedSamples):
                axis = _measure_axis(name, column, None)
                if axis.allows_labels(counts).mean() > MIN_AGREEING_FRACTION:
                    candidates.append(axis)
    if not candidates:
        return
    best = max(candidates, key=lambda axis: int(axis.allows_labels(counts).sum()))
    different = np.flatnonzero(~best.allows_labels(counts))
    if len(different):
        sample = different[0]
        raise InputError(
            f"sample {sample} has {pluralize(counts[sample], 'label')} in {target.origin}, but"
            f" {pluralize(best.sizes[sample], 'value')} in {best.origin}",
            "store one label for each value; ignore_index in [task] marks values without one",
        )


def measure_named_axes(
    columns: Mapping[str, DataColumn],
    recipes: Mapping[str, InputRecipe],
    inputs: Iterable[TensorInfo],
) -> list[tuple[str, AxisSizes]]:
    """Return names and sizes of the axes of inputs that the model names, without the batch."""
    axes = []
    for info in inputs:
        column = columns[info.name]
        dims = info.shape or ()
        shape = compute_input_shape(recipes[info.name], column.samples.shape)
        for symbol, size in zip(dims[1:], shape, strict=False):
            if isinstance(symbol, str) and symbol != dims[0]:
                axes.append((symbol, _measure_axis(info.name, column, size)))
    return axes


def _measure_axis(name: str, column: DataColumn, size: int | None) -> AxisSizes:
    """Return the size of each sample along an axis; `size` is None for sequences."""
    samples = column.samples
    if size is not None:
        return AxisSizes(name, column.origin, np.full(len(samples), size), is_uneven=False)
    sequences = samples.sequences if isinstance(samples, MaskSamples) else samples
    assert isinstance(sequences, RaggedSamples)  # noqa: S101 - no others have an axis without a size
    return AxisSizes(name, column.origin, np.diff(sequences.offsets), is_uneven=True)


def find_table_sizes(graph: GraphProto) -> Mapping[str, int]:
    """Return the number of rows of the embedding table that each input of tokens selects from."""
    # Reading data needs no onnx.
    from ltp_pipeline.graph.nodes import get_attribute, is_standard
    from ltp_pipeline.graph.tensors import collect_stored_tensors
    from ltp_pipeline.graph.view import iter_uses

    tables = collect_stored_tensors(graph)
    # Inputs that are initializers too have a default and need no data.
    names = {info.name for info in graph.input if info.name not in tables}
    sizes: dict[str, int] = {}
    for node, slot, name in iter_uses(graph, through=SAME_VALUES):
        if slot == 1 and name in names and is_standard(node, "Gather") and node.input[0] in tables:
            rows = tables[node.input[0]].dims[get_attribute(node, "axis", 0)]
            sizes[name] = min(rows, sizes.get(name, rows))
    return sizes


def check_tokens(table_sizes: Mapping[str, int], data: DatasetSplits) -> None:
    """Raise InputError if a token is outside of the embedding table of its input.

    Args:
        table_sizes: Number of rows of the table by the name of the input.
        data: Splits whose samples are checked.
    """
    for name, size in table_sizes.items():
        for samples in data.list_samples(name):
            if isinstance(samples, RaggedSamples) and not -size <= samples.pad < size:
                raise InputError(
                    f"input {name!r} takes tokens from 0 to {size - 1}, but sequences are padded"
                    f" with {samples.pad:g}",
                    f"set padding_value in [data.inputs.{json.dumps(name)}] to the token that the"
                    " model was trained with",
                )
            if samples.dtype.kind != "b":
                check_table_rows(name, samples, size)


def check_table_rows(name: str, tokens: Samples, size: int, rows: Array | None = None) -> None:
    """Raise InputError if a token is not a row of a table; negative ones count from its end.

    Args:
        name: Input that takes the tokens.
        tokens: Tokens of each sample.
        size: Number of rows of the table.
        rows: Number of each sample in messages; None to count them.
    """
    bad = _find_bad_value(tokens, lambda values: (values < -size) | (values >= size))
    if bad is not None:
        sample, token = bad
        if rows is not None:
            sample = rows[sample]
        raise InputError(
            f"sample {sample} of input {name!r} holds token"
            f" {int(token)}, but the model's table has {size} rows (0 to {size - 1})",
            "make the tokens with the tokenizer that the model was trained with",
        )


def make_sample_error(inputs: Mapping[str, Array], message: str, error: Exception) -> InputError:
    """Return the error for samples that pass all checks, but on which a model fails."""
    arrays = [f"{name!r} {x.dtype} {format_shape(x.shape)}" for name, x in inputs.items()]
    return InputError(
        f"{message} on these samples, {', '.join(arrays)}: {summarize_error(error)}",
        "use samples of the sizes and with the values that the model was made for",
    )
