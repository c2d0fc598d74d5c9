"""Round the values of packed files to fp16, or to int8 with a scale per output channel.

Files store exact values unless the settings ask for rounded ones.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, TensorProto

from ltp_pipeline.graph.readers import get_output_axis
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.settings.file_names import EXACT
from ltp_pipeline.system.arrays import Array

# Names under which a packed file stores values.
STORAGE_PARTS = {EXACT: "v", "fp16": "fp16", "int8": "int8"}
STORED_TYPES = {"fp16": TensorProto.FLOAT16, "int8": TensorProto.INT8}
LARGEST_STEP = 127  # largest absolute value in int8


@dataclass(frozen=True)
class RoundedTensor:
    """Stored values of a tensor and how they are stored."""

    storage: str  # key of STORAGE_PARTS
    values: Array
    scale: Array | None = None  # broadcasts over the dense tensor; None if there is none


def round_tensor(array: Array, storage: str, axis: int) -> RoundedTensor:
    """Round a tensor.

    Args:
        array: Dense values.
        storage: Key of STORAGE_PARTS.
        axis: Axis of the output channels; each gets a scale in int8.

    Returns:
        Rounded values, or exact ones if rounding would not make them smaller or would overflow.
    """
    exact = RoundedTensor(EXACT, array)
    is_wide_float = array.dtype.kind == "f" and array.dtype.itemsize >= 4
    if storage == EXACT or not is_wide_float or not np.isfinite(array).all():
        return exact
    if storage == "fp16":
        with np.errstate(over="ignore"):
            half = array.astype(np.float16)
        return RoundedTensor(storage, half) if np.isfinite(half).all() else exact
    scale = compute_channel_scale(array, axis, LARGEST_STEP)
    # A subnormal scale loses precision, and its inverse may overflow.
    if ((scale > 0) & (scale < np.finfo(array.dtype).tiny)).any():
        return exact
    steps = round_to_steps(array, np.where(scale > 0, scale, 1), LARGEST_STEP)
    return RoundedTensor(storage, steps, scale)


def compute_channel_scale(array: Array, axis: int, largest: int) -> Array:
    """Return a scale per output channel, so that the channel's largest value is `largest` steps.

    The scales have a shape that broadcasts over the array.
    """
    other_axes = tuple(i for i in range(array.ndim) if i != axis)
    largest_values = np.abs(array).max(axis=other_axes, keepdims=True, initial=0)
    return np.asarray(largest_values / array.dtype.type(largest))


def round_to_steps(array: Array, scale: Array, largest: int) -> Array:
    """Return an array as int8 multiples of a scale, at most `largest` in absolute value."""
    return np.clip(np.rint(array / scale), -largest, largest).astype(np.int8)


def restore_tensor(
    values: Array, dims: tuple[int, ...], dtype: np.dtype[np.generic], scale: Array | None
) -> Array:
    """Return a dense tensor from its flat stored values, computed as the decoding nodes do it."""
    dense = values.astype(dtype).reshape(dims)
    return dense if scale is None else dense * scale


def round_packed_weights(
    weights: Weights, packed_names: Collection[str], graph: GraphProto, storage: str
) -> dict[str, Array]:
    """Return the weights that a file with rounded values must hold."""
    result = dict(weights)
    for name in packed_names:
        array = weights[name]
        rounded = round_tensor(array, storage, find_output_axis(graph, name) % array.ndim)
        result[name] = restore_tensor(rounded.values, array.shape, array.dtype, rounded.scale)
    return result


def find_output_axis(graph: GraphProto, name: str) -> int:
    """Return the axis of a weight's output channels in the first node that multiplies by it."""
    for node in graph.node:
        if name in node.input[1:2]:
            return get_output_axis(node)
    return 0
