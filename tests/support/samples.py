"""Splits of one input, made from arrays, and what is read from them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ltp_pipeline.data.checks import convert_target
from ltp_pipeline.data.dataset import TARGET, ArraySamples, Batch, DataColumn, Split, SplitInput
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.results.schema_parts import InputRecipe
from ltp_pipeline.system.arrays import Array


def split_of(
    x: Array,
    labels: Array | None = None,
    name: str = "train",
    samples: type[ArraySamples] = ArraySamples,
) -> Split:
    """Return a split of all samples of `x`, which the input x takes unchanged."""
    targets = (
        {}
        if labels is None
        else {TARGET: convert_target(DataColumn(ArraySamples(np.asarray(labels)), "y"))}
    )
    inputs = {"x": SplitInput(samples(x), InputRecipe(type=x.dtype.name))}
    return Split(name, inputs, targets, np.arange(len(x)))


class UnreadableSamples(ArraySamples):
    """Samples that raise when they are read."""

    def take(self, indices: Array) -> Array:
        raise AssertionError(f"{len(indices)} samples were read")


def only_input(batch: Batch) -> Array:
    """Return the samples of a batch that has one input."""
    (x,) = batch.inputs.values()
    return x


def by_position(run: Callable[[np.ndarray], list[np.ndarray]]) -> Callable[..., list[np.ndarray]]:
    """Return a function of inputs by name from one of a single array."""
    return lambda inputs: run(inputs["x"])


def model(*dims: int | str, of: str = "FLOAT") -> TensorInfo:
    return TensorInfo("image", of, ("N", *dims))
