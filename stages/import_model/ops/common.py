"""What operator functions share: settings as Python numbers, sizes within reason, types torch cannot compute in."""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from ltp_pipeline.graph.tensors import MAX_CONSTANT_ELEMENTS, get_type_name
from ltp_pipeline.stages.import_model.values import TORCH_TYPES

Function = TypeVar("Function", bound=Callable[..., Any])

LARGEST_RESULT = 1 << 31  # elements; many of torch's kernels count no further

_SIGNED = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}


def ints(values: Tensor | Sequence[int] | None) -> list[int]:
    """Axes, sizes or pads, given as a tensor (input) or a list (attribute); nothing given is an empty list."""
    if values is None:
        return []
    if isinstance(values, Tensor):
        return [int(v) for v in values.reshape(-1).tolist()]
    return [int(v) for v in values]


def positive_axis(axis: int, rank: int) -> int:
    """Axis counted from the front."""
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"axis {axis} does not exist in a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def positive_axes(axes: Tensor | Sequence[int] | None, rank: int) -> list[int]:
    """Axes counted from the front; nothing given means every axis."""
    return [positive_axis(a, rank) for a in ints(axes)] or list(range(rank))


def checked(sizes: Iterable[int], source: Tensor | None = None) -> list[int]:
    """Sizes of a tensor about to be made, refused before memory is asked for.

    What is made out of a large `source` may itself be large, within bounds.
    """
    wanted = [int(s) for s in sizes]
    limit = MAX_CONSTANT_ELEMENTS
    if source is not None:
        limit = min(max(limit, 64 * source.numel()), LARGEST_RESULT)
    if any(s < 0 for s in wanted):
        raise ValueError(f"a tensor of shape {wanted} cannot be")
    count = math.prod(s or 1 for s in wanted)  # a sum over an empty axis has all the others
    if count > limit:
        empty = " but for its empty axes" * (0 in wanted)
        raise ValueError(
            f"a tensor of shape {wanted} has {count:,} elements{empty}, which is beyond reason"
        )
    return wanted


def torch_type(data_type: int) -> torch.dtype:
    """Torch's type for one of ONNX's, or an error that names it."""
    if data_type not in TORCH_TYPES:
        raise ValueError(f"torch has no type for {get_type_name(data_type)}")
    return TORCH_TYPES[data_type]


def number(value: Tensor | float) -> Any:
    """A tensor of one element as a Python number."""
    return value.item() if isinstance(value, Tensor) else value


def signed(x: Tensor) -> Tensor:
    """Widen the unsigned types that torch stores but does not compute in."""
    return x.to(_SIGNED[x.dtype]) if x.dtype in _SIGNED else x


def any_integer(function: Function) -> Function:
    """Let an operator take uint16, uint32 and uint64 too; uint64 is exact below 2**63, and modulo 2**64 in + - *."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        unsigned = next(
            (a.dtype for a in args if isinstance(a, Tensor) and a.dtype in _SIGNED), None
        )
        if unsigned is None:
            return function(*args, **keywords)
        result = function(*(signed(a) if isinstance(a, Tensor) else a for a in args), **keywords)
        return _narrowed(result, unsigned)

    return cast(Function, call)


def _narrowed(result: Any, unsigned: torch.dtype) -> Any:
    if isinstance(result, tuple):
        return tuple(_narrowed(r, unsigned) if i == 0 else r for i, r in enumerate(result))
    return result.to(unsigned) if result.dtype is _SIGNED[unsigned] else result


def wrapped(indices: Tensor, size: int) -> Tensor:
    """Indices with negative ones counted from the end."""
    indices = indices.long()
    return torch.where(indices < 0, indices + size, indices)
