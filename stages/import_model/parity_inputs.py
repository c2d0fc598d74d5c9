"""Inputs on which torch and onnxruntime are compared: samples, or random values.

A file may leave dimensions open, and only some sizes may run, so that random inputs are made for
a sequence of likely shapes until one runs. The same file gets the same inputs every time.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper

from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.system.arrays import Array

BATCH_SIZE = 2
SAMPLES = "samples"  # description of inputs that are samples of the data
MAX_ELEMENTS = 1 << 24  # of all random inputs; larger ones would only test the machine
SCALES = (1.0, 10.0, 100.0, 0.1)  # factors of random inputs, tried until every output is compared
_OPEN_SIZES = (64, 224, 32, 299, 512, 16, 8, 1)  # sizes of a dimension that the file leaves open
_OPEN_CHANNELS = (3, 1)  # sizes of the second of four dimensions if the file leaves it open

Shape = tuple[int, ...]


class ParityInputs(NamedTuple):
    """One array for each input by name, and a description for messages."""

    arrays: dict[str, Array]
    description: str


def iter_likely_inputs(
    infos: Sequence[TensorInfo], samples: Mapping[str, Array] | None
) -> Iterator[ParityInputs | None]:
    """Yield inputs to try until one runs: the samples if there are any, then random ones.

    Yields:
        Inputs, or None for a shape that is too large.
    """
    samples = samples or {}
    if samples and all(info.name in samples for info in infos):
        arrays = {info.name: to_input(info, samples[info.name]) for info in infos}
        yield ParityInputs(arrays, SAMPLES)
    sample_shapes = {name: array.shape[1:] for name, array in samples.items()}
    for shapes in _iter_shapes(infos, sample_shapes):
        is_small = sum(map(math.prod, shapes)) <= MAX_ELEMENTS
        if is_small:
            yield _make_random_inputs(infos, shapes)
        else:
            yield None


def iter_scaled_inputs(
    infos: Sequence[TensorInfo], like: ParityInputs, is_half: bool
) -> Iterator[ParityInputs]:
    """Yield random inputs of the same shapes as others, with other scales.

    In a model in half precision, large values would overflow.
    """
    if not any(map(_is_floating, infos)):
        return
    shapes = [array.shape for array in like.arrays.values()]
    for scale in SCALES:
        inputs = _make_random_inputs(infos, shapes, scale)
        if inputs.description != like.description and (scale <= 1 or not is_half):
            yield inputs


def is_numeric(info: TensorInfo) -> bool:
    """Return True if random values can be made for an input."""
    return _is_floating(info) or info.type == "BOOL" or info.type.startswith(("INT", "UINT"))


def _is_floating(info: TensorInfo) -> bool:
    return "FLOAT" in info.type or info.type == "DOUBLE"


def _get_numpy_type(info: TensorInfo) -> "np.dtype[Any]":
    return np.dtype(helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(info.type)))


def to_input(info: TensorInfo, samples: Array) -> Array:
    """Convert samples to the type of an input and, if it is fixed, to its batch size.

    Samples are repeated if there are too few.
    """
    count = len(samples)
    if info.shape and isinstance(info.shape[0], int) and info.shape[0] > 0:
        count = info.shape[0]
    return np.resize(samples, (count, *samples.shape[1:])).astype(_get_numpy_type(info))


def _make_random_inputs(
    infos: Sequence[TensorInfo], shapes: Sequence[Shape], scale: float = 1.0
) -> ParityInputs:
    """Return normally distributed floats times the scale, and integers that are zero or one."""
    arrays: dict[str, Array] = {}
    labels: list[str] = []
    for info, shape in zip(infos, shapes, strict=True):
        rng = np.random.default_rng(0)
        is_float = _is_floating(info)
        values: Any = scale * rng.standard_normal(shape) if is_float else rng.integers(0, 2, shape)
        # A shape without axes makes a number, not an array.
        arrays[info.name] = np.asarray(values).astype(_get_numpy_type(info))
        labels.append(f"{info.name} {'×'.join(map(str, shape))}")
    description = f"random input {', '.join(labels)}"
    if scale != 1:
        description += f", {scale:g} times as large"
    return ParityInputs(arrays, description)


def _iter_shapes(
    infos: Sequence[TensorInfo], sample_shapes: Mapping[str, Shape]
) -> Iterator[list[Shape]]:
    """Yield shapes of all inputs to try, the most likely first.

    Dimensions that the file leaves open come from the shapes of one sample, else they are guessed.
    A symbol has one size wherever it occurs.
    """
    all_dims: list[Sequence[int | str | None]] = []
    symbols: dict[str, int] = {}
    for info in infos:
        sample_shape = sample_shapes.get(info.name)
        dims: Sequence[int | str | None] = (None, *(sample_shape or (None, None, None)))
        if info.shape is not None:
            dims = info.shape
        if sample_shape is not None and len(sample_shape) == len(dims) - 1:
            for dim, size in zip(dims[1:], sample_shape, strict=True):
                if isinstance(dim, str):
                    symbols[dim] = size
            dims = (dims[0], *sample_shape)
        all_dims.append(dims)
    tried: set[tuple[Shape, ...]] = set()
    for guesses in itertools.product(_OPEN_SIZES, _OPEN_CHANNELS, (BATCH_SIZE, 1)):
        sizes = dict(symbols)
        shapes = [_fill_shape(dims, *guesses, sizes) for dims in all_dims]
        if tuple(shapes) not in tried:
            tried.add(tuple(shapes))
            yield shapes


def _fill_shape(
    dims: Sequence[int | str | None],
    size: int,
    channels: int,
    batch: int,
    symbol_sizes: dict[str, int],
) -> Shape:
    """Return a shape in which open dimensions have a size.

    Args:
        dims: Dimensions, some of them open.
        size: Size of an open dimension.
        channels: Size of the second of four dimensions if it is open.
        batch: Size of the first dimension if it is open.
        symbol_sizes: Sizes of symbols, to which new symbols are added.
    """
    shape: list[int] = []
    for i, dim in enumerate(dims):
        guess = size
        if i == 0:
            guess = batch
        elif i == 1 and len(dims) == 4:
            guess = channels
        if isinstance(dim, str):
            shape.append(symbol_sizes.setdefault(dim, guess))
        elif dim is not None and dim > 0:
            shape.append(dim)
        else:
            shape.append(guess)
    return tuple(shape)
