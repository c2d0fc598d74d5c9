"""Smaller values for packed files: fp16, or int8 with a scale per output channel. Off unless asked for."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, TensorProto

from ltp_pipeline.errors import UsageError
from ltp_pipeline.graph.readers import get_output_axis
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.settings.file_names import EXACT
from ltp_pipeline.system.arrays import Array

STORAGE_PARTS = {
    EXACT: "v",
    "fp16": "fp16",
    "int8": "int8",
}  # under which name a packed file stores the values
LARGEST_STEP = 127  # steps of a value in int8
STORED_TYPES = {"fp16": TensorProto.FLOAT16, "int8": TensorProto.INT8}


@dataclass(frozen=True)
class RoundedTensor:
    """What is stored in place of a tensor's exact values; `scale` broadcasts over the dense tensor."""

    storage: str
    values: Array
    scale: Array | None = None


def check_storage(values: str) -> None:
    """Refuse an unknown kind of values."""
    if values not in STORAGE_PARTS:
        raise UsageError(
            f"there is no kind of values named '{values}'",
            f"choose one of {', '.join(STORAGE_PARTS)}",
        )


def round_tensor(array: Array, storage: str, axis: int) -> RoundedTensor:
    """Round a tensor; its values stay exact where rounding would not shrink it or would overflow."""
    exact = RoundedTensor(EXACT, array)
    if (
        storage == EXACT
        or array.dtype.kind != "f"
        or array.dtype.itemsize < 4
        or not np.isfinite(array).all()
    ):
        return exact
    if storage == "fp16":
        with np.errstate(over="ignore"):
            half = array.astype(np.float16)
        return RoundedTensor(storage, half) if np.isfinite(half).all() else exact
    scale = compute_channel_scale(array, axis, LARGEST_STEP)
    # A subnormal scale loses precision, and its inverse may overflow.
    if ((scale > 0) & (scale < np.finfo(array.dtype).tiny)).any():
        return exact
    return RoundedTensor(
        storage, round_to_steps(array, np.where(scale > 0, scale, 1), LARGEST_STEP), scale
    )


def compute_channel_scale(array: Array, axis: int, largest: int) -> Array:
    """A scale for each channel, in so many steps of which its largest value is; shaped to divide the tensor."""
    others = tuple(i for i in range(array.ndim) if i != axis)
    return np.asarray(
        np.abs(array).max(axis=others, keepdims=True, initial=0) / array.dtype.type(largest)
    )


def round_to_steps(array: Array, scale: Array, largest: int) -> Array:
    """A tensor in whole steps of its scales; zero is zero."""
    return np.clip(np.rint(array / scale), -largest, largest).astype(np.int8)


def restore_tensor(
    flat: Array, dims: tuple[int, ...], dtype: np.dtype[np.generic], scale: Array | None
) -> Array:
    """The dense tensor in its own type, computed as the decoding nodes compute it."""
    dense = flat.astype(dtype).reshape(dims)
    return dense if scale is None else dense * scale


def round_packed_weights(
    weights: Weights, packed_names: Collection[str], graph: GraphProto, storage: str
) -> dict[str, Array]:
    """What a file with rounded values must hold: the packed tensors rounded, all others as they are."""
    held = dict(weights)
    for name in packed_names:
        array = weights[name]
        kept = round_tensor(array, storage, find_output_axis(graph, name) % array.ndim)
        held[name] = restore_tensor(kept.values, array.shape, array.dtype, kept.scale)
    return held


def find_output_axis(graph: GraphProto, name: str) -> int:
    """The axis of a kernel that counts output channels, by the node that uses it first."""
    return next((get_output_axis(node) for node in graph.node if name in node.input[1:2]), 0)
