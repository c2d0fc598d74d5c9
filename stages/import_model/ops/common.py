"""Helpers of operator functions: Python numbers from tensors, limits on sizes, unsigned types."""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from ltp_pipeline.graph.tensors import MAX_CONSTANT_ELEMENTS, get_type_name
from ltp_pipeline.stages.import_model.values import TORCH_TYPES

Function = TypeVar("Function", bound=Callable[..., Any])

MAX_RESULT_ELEMENTS = 1 << 31  # many kernels of torch cannot index more elements

_SIGNED = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}


def to_ints(values: Tensor | Sequence[int] | None) -> list[int]:
    """Return axes, sizes or pads as a list, from a tensor (input) or a sequence (attribute).

    None gives an empty list.
    """
    if values is None:
        return []
    if isinstance(values, Tensor):
        return [int(v) for v in values.reshape(-1).tolist()]
    return [int(v) for v in values]


def positive_axis(axis: int, rank: int) -> int:
    """Return an axis counted from the front; raise ValueError if it does not exist."""
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"axis {axis} does not exist in a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def positive_axes(axes: Tensor | Sequence[int] | None, rank: int) -> list[int]:
    """Return axes counted from the front; None gives every axis."""
    return [positive_axis(a, rank) for a in to_ints(axes)] or list(range(rank))


def check_sizes(sizes: Iterable[int], source: Tensor | None = None) -> list[int]:
    """Return the sizes of a new tensor; raise ValueError if it would be too large.

    Args:
        sizes: The sizes.
        source: The tensor it is made from. The result of a large one may itself be large, within
            bounds.
    """
    shape = [int(s) for s in sizes]
    limit = MAX_CONSTANT_ELEMENTS
    if source is not None:
        limit = min(max(limit, 64 * source.numel()), MAX_RESULT_ELEMENTS)
    if any(s < 0 for s in shape):
        raise ValueError(f"a tensor of shape {shape} cannot be")
    count = math.prod(s or 1 for s in shape)  # a sum over an empty axis has all the others
    if count > limit:
        empty = " but for its empty axes" * (0 in shape)
        raise ValueError(
            f"a tensor of shape {shape} has {count:,} elements{empty}, which is beyond reason"
        )
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
    def call(*args: Any, **keywords: Any) -> Any:
        unsigned = next(
            (a.dtype for a in args if isinstance(a, Tensor) and a.dtype in _SIGNED), None
        )
        if unsigned is None:
            return function(*args, **keywords)
        result = function(
            *(widen_unsigned(a) if isinstance(a, Tensor) else a for a in args), **keywords
        )
        return _narrow_result(result, unsigned)

    return cast(Function, call)


def _narrow_result(result: Any, unsigned: torch.dtype) -> Any:
    if isinstance(result, tuple):
        return tuple(_narrow_result(r, unsigned) if i == 0 else r for i, r in enumerate(result))
    return result.to(unsigned) if result.dtype is _SIGNED[unsigned] else result


def wrap_indices(indices: Tensor, size: int) -> Tensor:
    """Return indices with negative ones counted from the end."""
    indices = indices.long()
    return torch.where(indices < 0, indices + size, indices)
