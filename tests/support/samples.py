"""Splits of one input, made from arrays, and what is read from them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ltp_pipeline.data.checks import checked_target
from ltp_pipeline.data.dataset import TARGET, ArraySamples, Batch, DataColumn, Split, SplitInput
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.system.arrays import Array


def split_of(
    x: Array,
    labels: Array | None = None,
    name: str = "train",
    prepare: Callable[[Array], Array] = lambda x: x,
) -> Split:
    """All of `x`, taken by an input called x."""
    targets = (
        {}
        if labels is None
        else {TARGET: checked_target(DataColumn(ArraySamples(np.asarray(labels)), "y"))}
    )
    return Split(name, {"x": SplitInput(ArraySamples(x), prepare)}, targets, np.arange(len(x)))


def unread(x: Array) -> Array:
    """A preparation that must not be asked for."""
    raise AssertionError(f"{len(x)} inputs were read")


def only(batch: Batch) -> Array:
    """The samples of a batch that has one input."""
    (x,) = batch.inputs.values()
    return x


def by_position(run: Callable[[np.ndarray], list[np.ndarray]]) -> Callable[..., list[np.ndarray]]:
    """What computes outputs from the one input."""
    return lambda inputs: run(inputs["x"])


def model(*dims: int | str, of: str = "FLOAT") -> TensorInfo:
    return TensorInfo("image", of, ("N", *dims))
