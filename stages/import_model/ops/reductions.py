"""Reduce* and ArgMax/ArgMin.

Axes are an attribute up to opset 17 (ReduceSum: 12) and an input afterwards.
"""

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import (
    Axes,
    accept_unsigned,
    positive_axes,
    positive_axis,
    to_ints,
    widen_unsigned,
)
from ltp_pipeline.stages.import_model.registry import OpFunction, op


def _register_reduction(
    name: str,
    function: OpFunction,
    prepare: OpFunction | None = None,
    finish: OpFunction | None = None,
) -> None:
    """Register an operator that reduces axes.

    Args:
        name: Name of the operator.
        function: Reduces axes of a tensor, and keeps them with size 1 if its last argument is True.
        prepare: Function of the input before it is reduced.
        finish: Function of the result.
    """

    @op(name, constants=(1,))
    @accept_unsigned
    def reduce(
        x: Tensor,
        axes: Axes = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Tensor:
        rank = x.dim()
        dims = positive_axes(axes, rank)
        is_kept = bool(keepdims)
        if rank == 0 or (noop_with_empty_axes and not to_ints(axes)):
            x = x.unsqueeze(-1)  # each element is reduced by itself
            dims = [rank]
            is_kept = False
        y: Tensor = x if prepare is None else prepare(x)
        y = function(y, dims, is_kept)
        if finish is not None:
            y = finish(y)
        return y if y.dtype is x.dtype else y.to(x.dtype)


def _to_float(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.double()


def _get_limits(dtype: torch.dtype) -> tuple[float, float]:
    """Return the least and the greatest value of a type."""
    if dtype is torch.bool:
        return 0, 1
    if dtype.is_floating_point:
        return float("-inf"), float("inf")
    limits = torch.iinfo(dtype)
    return limits.min, limits.max


def _fill_empty(function: OpFunction, position: int) -> OpFunction:
    """Return amax or amin with one of the limits of the type as the extreme of no elements."""

    def reduce(x: Tensor, dims: list[int], keep: bool) -> Tensor:
        if x.numel() > 0:
            y: Tensor = function(x, dims, keep)
            return y
        value = _get_limits(x.dtype)[position]
        return torch.full_like(x.sum(dims, keep), value, dtype=x.dtype)

    return reduce


def _reduce_prod(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    for dim in sorted(dims, reverse=True):
        x = x.prod(dim, keep)
    return x


def _reduce_l2(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, 2, dims, keep)
    return norm


_register_reduction("ReduceL1", torch.sum, torch.abs)
_register_reduction("ReduceL2", _reduce_l2, _to_float)
_register_reduction("ReduceLogSum", torch.sum, finish=torch.log)
_register_reduction("ReduceLogSumExp", torch.logsumexp, _to_float)
_register_reduction("ReduceMax", _fill_empty(torch.amax, 0))
_register_reduction("ReduceMean", torch.mean, _to_float)
_register_reduction("ReduceMin", _fill_empty(torch.amin, 1))
_register_reduction("ReduceProd", _reduce_prod)
_register_reduction("ReduceSum", torch.sum)
_register_reduction("ReduceSumSquare", torch.sum, torch.square)


def _register_extreme_index(name: str, function: OpFunction) -> None:
    @op(name, untrained=(0,))
    def find_index(
        x: Tensor,
        *,
        axis: int = 0,
        keepdims: int = 1,
        select_last_index: int = 0,
    ) -> Tensor:
        x = widen_unsigned(x)
        axis = positive_axis(axis, x.dim())
        if select_last_index:
            x = x.flip(axis)
        index: Tensor = function(x, axis, bool(keepdims))
        return x.shape[axis] - 1 - index if select_last_index else index


_register_extreme_index("ArgMax", torch.argmax)
_register_extreme_index("ArgMin", torch.argmin)
