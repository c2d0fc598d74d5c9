"""Helpers of operator functions: Python numbers from tensors, limits on sizes, unsigned types."""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ltp_pipeline.graph.tensors import MAX_CONSTANT_ELEMENTS, get_type_name
from ltp_pipeline.stages.import_model.registry import Function, OpFunction, op
from ltp_pipeline.stages.import_model.values import TORCH_TYPES

# Pads, strides or the like: an attribute that may be absent.
OptionalInts = Sequence[int] | None
# Axes or sizes: an attribute in old versions of an operator and an input in newer ones.
Axes = Tensor | Sequence[int] | None

MAX_RESULT_ELEMENTS = 1 << 31  # many kernels of torch cannot index more elements

_SIGNED = {
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,
}


def to_ints(values: Axes) -> list[int]:
    """Return axes, sizes or pads as a list, empty for None."""
    if values is None:
        return []
    if isinstance(values, Tensor):
        values = values.reshape(-1).tolist()
    return [int(value) for value in values]


def positive_axis(axis: int, rank: int) -> int:
    """Return an axis counted from the front; raise ValueError if it does not exist."""
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"axis {axis} does not exist in a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def positive_axes(axes: Axes, rank: int) -> list[int]:
    """Return axes counted from the front; None gives every axis."""
    dims = to_ints(axes) or range(rank)
    return [positive_axis(dim, rank) for dim in dims]


def make_range(count: int, x: Tensor) -> Tensor:
    """Return the numbers below a count, on the device of a tensor."""
    return torch.arange(count, device=x.device)


def make_view_shape(rank: int, axis: int) -> list[int]:
    """Return the shape in which a vector lies along one axis of a tensor."""
    shape = [1] * rank
    shape[axis] = -1
    return shape


def check_sizes(sizes: Iterable[int], source: Tensor | None = None) -> list[int]:
    """Return the sizes of a new tensor; raise ValueError if it would be too large.

    Args:
        sizes: The sizes.
        source: The tensor it is made from. The result of a large one may itself be large, within
            bounds.
    """
    shape = [int(size) for size in sizes]
    limit = MAX_CONSTANT_ELEMENTS
    if source is not None:
        limit = min(max(limit, 64 * source.numel()), MAX_RESULT_ELEMENTS)
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape} cannot be")
    count = math.prod(size or 1 for size in shape)  # a sum over an empty axis has all the others
    if count > limit:
        raise ValueError(f"shape {shape} has {count:,} elements, which is beyond reason")
    return shape


def to_torch_type(data_type: int) -> torch.dtype:
    """Return the torch type of an ONNX type; raise ValueError if there is none."""
    if data_type not in TORCH_TYPES:
        raise ValueError(f"torch has no type for {get_type_name(data_type)}")
    return TORCH_TYPES[data_type]


def to_number(value: Tensor | float) -> Any:
    """Return a tensor of one element as a Python number."""
    return value.item() if isinstance(value, Tensor) else value


def widen_unsigned(x: Tensor) -> Tensor:
    """Widen the unsigned types that torch stores but does not compute in."""
    return x.to(_SIGNED[x.dtype]) if x.dtype in _SIGNED else x


def accept_unsigned(function: Function) -> Function:
    """Let an operator take uint16, uint32 and uint64 too.

    uint64 is exact below 2**63. Sums, differences and products are exact modulo 2**64.
    """

    @functools.wraps(function)
    def call(*inputs: Any, **attributes: Any) -> Any:
        for x in inputs:
            if isinstance(x, Tensor) and x.dtype in _SIGNED:
                return _call_widened(function, inputs, attributes, x.dtype)
        return function(*inputs, **attributes)

    return cast(Function, call)


def _call_widened(
    function: OpFunction,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    dtype: torch.dtype,
) -> Any:
    """Call an operator with widened inputs, and narrow its first result to the unsigned type."""
    widened = [widen_unsigned(x) if isinstance(x, Tensor) else x for x in inputs]
    result = function(*widened, **attributes)
    first, *others = result if isinstance(result, tuple) else (result,)
    if first.dtype is _SIGNED[dtype]:
        first = first.to(dtype)
    return (first, *others) if others else first


def register_functions(
    functions: Mapping[str, OpFunction],
    unsigned: bool = False,
    untrained: tuple[int, ...] = (),
) -> None:
    """Register torch functions of tensors as operators without attributes.

    Args:
        functions: The functions by the name of the operator.
        unsigned: If True, the operators accept the wider unsigned types too.
        untrained: Input slots of data without a gradient.
    """
    for name, function in functions.items():
        call = _hide_keywords(function)
        op(name, untrained=untrained)(accept_unsigned(call) if unsigned else call)


def _hide_keywords(function: OpFunction) -> Callable[..., Tensor]:
    """Wrap a function of torch, whose signature Python may not know."""
    return lambda *inputs: function(*inputs)


def wrap_indices(indices: Tensor, size: int) -> Tensor:
    """Return indices with negative ones counted from the end."""
    indices = indices.long()
    return torch.where(indices < 0, indices + size, indices)
