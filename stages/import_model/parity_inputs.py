"""Inputs on which torch and onnxruntime are compared: samples, or random values of likely shapes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from onnx import TensorProto, helper

from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.system.arrays import Array

BATCH = 2
SAMPLES = "samples"  # what inputs are called that are of the data
LARGEST_INPUT = 1 << 24  # elements; beyond it a random input would be a test of the machine
SCALES = (1.0, 10.0, 100.0, 0.1)  # of random input, until every output has said something
_GUESSES = (
    64,
    224,
    32,
    299,
    512,
    16,
    8,
    1,
)  # for a dimension the file leaves open, when no data tell
_CHANNELS = (3, 1)


class ParityInputs(NamedTuple):
    """One array for each input by its name, and what to call them."""

    arrays: dict[str, Array]
    description: str


def iter_likely_inputs(
    inputs: Sequence[TensorInfo], samples: Mapping[str, Array] | None
) -> Iterator[ParityInputs | None]:
    """Inputs to try until one runs: the samples where there are any, then random ones; None for what is too large."""
    known = samples or {}
    if known and all(i.name in known for i in inputs):
        yield ParityInputs({i.name: to_input(i, known[i.name]) for i in inputs}, SAMPLES)
    for shapes in _shapes(inputs, {name: array.shape[1:] for name, array in known.items()}):
        small = sum(map(math.prod, shapes)) <= LARGEST_INPUT
        yield _random(inputs, shapes) if small else None


def iter_scaled_inputs(
    inputs: Sequence[TensorInfo], like: ParityInputs, half: bool
) -> Iterator[ParityInputs]:
    """Random inputs of the same shapes and other scales; large values would overflow in half precision."""
    if not any(_floating(i) for i in inputs):
        return
    shapes = [array.shape for array in like.arrays.values()]
    for scale in SCALES:
        feeds = _random(inputs, shapes, scale)
        if feeds.description != like.description and (scale <= 1 or not half):
            yield feeds


def is_numeric(info: TensorInfo) -> bool:
    """Whether random values can be made for an input."""
    return _floating(info) or info.type == "BOOL" or info.type.startswith(("INT", "UINT"))


def _floating(info: TensorInfo) -> bool:
    return "FLOAT" in info.type or info.type == "DOUBLE"


def to_input(info: TensorInfo, samples: Array) -> Array:
    """Samples as an input wants them: its type, and its batch size where that is fixed."""
    size = info.shape[0] if info.shape else None
    count = size if isinstance(size, int) and size > 0 else len(samples)
    dtype = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(info.type))
    return np.resize(samples, (count, *samples.shape[1:])).astype(dtype)  # repeats what is there


def _random(
    inputs: Sequence[TensorInfo], shapes: Sequence[tuple[int, ...]], scale: float = 1.0
) -> ParityInputs:
    sizes = ", ".join(
        f"{i.name} {'×'.join(map(str, shape))}" for i, shape in zip(inputs, shapes, strict=True)
    )
    shown = f"random input {sizes}" + ("" if scale == 1 else f", {scale:g} times as large")
    return ParityInputs(
        {i.name: _values(i, shape, scale) for i, shape in zip(inputs, shapes, strict=True)}, shown
    )


def _values(info: TensorInfo, shape: Sequence[int], scale: float) -> Array:
    """Values of an input's own type: normal, or zeros and ones."""
    rng = np.random.default_rng(0)
    dtype = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(info.type))
    if _floating(info):
        return np.asarray(scale * rng.standard_normal(shape)).astype(
            dtype
        )  # without axes it is no array
    return np.asarray(rng.integers(0, 2, shape)).astype(dtype)


def _shapes(
    inputs: Sequence[TensorInfo], of_samples: Mapping[str, tuple[int, ...]]
) -> Iterator[list[tuple[int, ...]]]:
    """Shapes to try, most likely first; what the file leaves open comes from the data or is guessed.

    A symbol has one size wherever it stands.
    """
    tried = set()
    known = {i.name: tuple(_declared(i, of_samples.get(i.name))) for i in inputs}
    given = {
        d: size
        for i in inputs
        for d, size in _given(known[i.name], of_samples.get(i.name))
        if isinstance(d, str)
    }
    guesses = _GUESSES if any(_open(i) for i in inputs) else _GUESSES[:1]
    for guess in guesses:
        for channels in _CHANNELS:
            for batch in (BATCH, 1):
                sizes = dict(given)
                shapes = [
                    _shape(known[i.name], guess, channels, batch, of_samples.get(i.name), sizes)
                    for i in inputs
                ]
                if tuple(shapes) not in tried:
                    tried.add(tuple(shapes))
                    yield shapes


def _open(info: TensorInfo) -> bool:
    return info.shape is None or any(not isinstance(d, int) or d < 1 for d in info.shape[1:])


def _declared(info: TensorInfo, sample_shape: tuple[int, ...] | None) -> Sequence[int | str | None]:
    return info.shape if info.shape is not None else (None, *(sample_shape or (None, None, None)))


def _given(
    declared: Sequence[int | str | None], sample_shape: tuple[int, ...] | None
) -> Iterator[tuple[int | str | None, int]]:
    """The dimensions that samples tell."""
    if sample_shape is not None and len(sample_shape) == len(declared) - 1:
        yield from zip(declared[1:], sample_shape, strict=True)


def _shape(
    declared: Sequence[int | str | None],
    guess: int,
    channels: int,
    batch: int,
    sample_shape: tuple[int, ...] | None,
    sizes: dict[str, int],
) -> tuple[int, ...]:
    """One input's shape; `sizes` has what symbols stand for, and is added to."""
    shape = []
    for i, d in enumerate(declared):
        size = d if isinstance(d, int) and d > 0 else None
        if size is None:
            size = batch if i == 0 else channels if i == 1 and len(declared) == 4 else guess
            size = sizes.setdefault(d, size) if isinstance(d, str) else size
        shape.append(size)
    shape[1:] = [size for _, size in _given(declared, sample_shape)] or shape[1:]
    return tuple(shape)
