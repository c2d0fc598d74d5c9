"""Reduce* and ArgMax/ArgMin.

Axes are an attribute up to opset 17 (ReduceSum: 12) and an input afterwards.
"""

from collections.abc import Callable

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

Reduction = Callable[[Tensor, list[int], bool], Tensor]


def _register_reduction(name: str) -> Callable[[Reduction], Reduction]:
    """Register the decorated function, which reduces axes and may keep them."""

    def register(function: Reduction) -> Reduction:
        @op(name, constants=(1,))
        @accept_unsigned
        def reduce(
            x: Tensor, axes: Axes = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
        ) -> Tensor:
            if x.dim() == 0 or (noop_with_empty_axes and not to_ints(axes)):
                return function(x.unsqueeze(-1), [x.dim()], False)  # each element by itself
            return function(x, positive_axes(axes, x.dim()), bool(keepdims))

        return function

    return register


@_register_reduction("ReduceMax")
def reduce_max(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    if 0 in [x.shape[dim] for dim in dims]:
        return torch.full_like(reduce_sum(x, dims, keep), _get_lowest(x.dtype))
    return x.amax(dims, keep)


@_register_reduction("ReduceMin")
def reduce_min(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    if 0 in [x.shape[dim] for dim in dims]:
        return torch.full_like(reduce_sum(x, dims, keep), _get_highest(x.dtype))
    return x.amin(dims, keep)


def _get_lowest(dtype: torch.dtype) -> float:
    if dtype.is_floating_point:
        return float("-inf")
    return 0 if dtype is torch.bool else torch.iinfo(dtype).min


def _get_highest(dtype: torch.dtype) -> float:
    if dtype.is_floating_point:
        return float("inf")
    return 1 if dtype is torch.bool else torch.iinfo(dtype).max


@_register_reduction("ReduceSum")
def reduce_sum(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return x.sum(dims, keep, dtype=x.dtype)


@_register_reduction("ReduceMean")
def reduce_mean(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    if x.is_floating_point():
        return x.mean(dims, keep)
    return x.double().mean(dims, keep).to(x.dtype)


@_register_reduction("ReduceProd")
def reduce_prod(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    for dim in sorted(dims, reverse=True):
        x = x.prod(dim, keep, dtype=x.dtype)
    return x


@_register_reduction("ReduceL1")
def reduce_l1(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return reduce_sum(x.abs(), dims, keep)


@_register_reduction("ReduceL2")
def reduce_l2(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(_to_float(x), 2, dims, keep)
    return norm.to(x.dtype)


@_register_reduction("ReduceSumSquare")
def reduce_sum_square(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return reduce_sum(x * x, dims, keep)


@_register_reduction("ReduceLogSum")
def reduce_log_sum(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return reduce_sum(x, dims, keep).log().to(x.dtype)


@_register_reduction("ReduceLogSumExp")
def reduce_log_sum_exp(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return torch.logsumexp(_to_float(x), dims, keep).to(x.dtype)


def _to_float(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.double()


def _register_extreme_index(name: str, function: OpFunction) -> None:
    @op(name, untrained=(0,))
    def find_index(
        x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Tensor:
        x = widen_unsigned(x)
        axis = positive_axis(axis, x.dim())
        index: Tensor = function(x.flip(axis) if select_last_index else x, axis, bool(keepdims))
        return x.shape[axis] - 1 - index if select_last_index else index


_register_extreme_index("ArgMax", torch.argmax)
_register_extreme_index("ArgMin", torch.argmin)
