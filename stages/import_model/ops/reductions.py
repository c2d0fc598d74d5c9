"""Reduce* and ArgMax/ArgMin.

Axes are an attribute up to opset 17 (ReduceSum: 12) and an input afterwards.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import (
    accept_unsigned,
    positive_axes,
    positive_axis,
    to_ints,
    widen_unsigned,
)
from ltp_pipeline.stages.import_model.registry import op

Reduction = Callable[[Tensor, list[int], bool], Tensor]


def _reduce_extreme(x: Tensor, dims: list[int], keep: bool, largest: bool) -> Tensor:
    if 0 not in [x.shape[d] for d in dims]:
        return x.amax(dims, keep) if largest else x.amin(dims, keep)
    if x.is_floating_point():
        worst: float = float("-inf") if largest else float("inf")
    elif x.dtype is torch.bool:
        worst = not largest
    else:
        worst = torch.iinfo(x.dtype).min if largest else torch.iinfo(x.dtype).max
    return torch.full_like(x.sum(dims, keep), worst, dtype=x.dtype)


def _reduce_max(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return _reduce_extreme(x, dims, keep, largest=True)


def _reduce_min(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return _reduce_extreme(x, dims, keep, largest=False)


def _reduce_sum(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return x.sum(dims, keep, dtype=x.dtype)


def _reduce_mean(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return x.mean(dims, keep) if x.is_floating_point() else x.double().mean(dims, keep).to(x.dtype)


def _reduce_prod(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    for d in sorted(dims, reverse=True):
        x = x.prod(d, keep, dtype=x.dtype)
    return x


def _reduce_l1(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return _reduce_sum(x.abs(), dims, keep)


def _reduce_sum_square(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return _reduce_sum(x * x, dims, keep)


def _reduce_l2(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    if x.is_floating_point():
        norm: Tensor = torch.linalg.vector_norm(x, 2, dims, keep)
        return norm
    return _reduce_sum_square(x.double(), dims, keep).sqrt().to(x.dtype)


def _reduce_log_sum(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return _reduce_sum(x, dims, keep).log().to(x.dtype)


def _reduce_log_sum_exp(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return torch.logsumexp(x if x.is_floating_point() else x.double(), dims, keep).to(x.dtype)


def _register_reduction(name: str, reduce: Reduction, axes_since: int) -> None:
    @op(name)
    @accept_unsigned
    def attribute(x: Tensor, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Tensor:
        return (
            reduce(x, positive_axes(axes, x.dim()), bool(keepdims))
            if x.dim()
            else _reduce_elementwise(x, reduce)
        )

    @op(name, since=axes_since, constants=(1,))
    @accept_unsigned
    def input(
        x: Tensor, axes: Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        if noop_with_empty_axes and not to_ints(axes):
            return _reduce_elementwise(x, reduce)
        return (
            reduce(x, positive_axes(axes, x.dim()), bool(keepdims))
            if x.dim()
            else _reduce_elementwise(x, reduce)
        )


def _reduce_elementwise(x: Tensor, reduce: Reduction) -> Tensor:
    """Reduce over no axis: each element by itself."""
    return reduce(x.unsqueeze(-1), [x.dim()], False)


for _name, _reduce, _since in [
    ("ReduceMax", _reduce_max, 18),
    ("ReduceMin", _reduce_min, 18),
    ("ReduceMean", _reduce_mean, 18),
    ("ReduceSum", _reduce_sum, 13),
    ("ReduceProd", _reduce_prod, 18),
    ("ReduceL1", _reduce_l1, 18),
    ("ReduceL2", _reduce_l2, 18),
    ("ReduceSumSquare", _reduce_sum_square, 18),
    ("ReduceLogSum", _reduce_log_sum, 18),
    ("ReduceLogSumExp", _reduce_log_sum_exp, 18),
]:
    _register_reduction(_name, _reduce, _since)


@op("ArgMax", untrained=(0,))
def arg_max(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    x = widen_unsigned(x)
    if select_last_index:
        axis = positive_axis(axis, x.dim())
        return x.shape[axis] - 1 - x.flip(axis).argmax(axis, bool(keepdims))
    return x.argmax(axis, bool(keepdims))


@op("ArgMin", untrained=(0,))
def arg_min(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    x = widen_unsigned(x)
    if select_last_index:
        axis = positive_axis(axis, x.dim())
        return x.shape[axis] - 1 - x.flip(axis).argmin(axis, bool(keepdims))
    return x.argmin(axis, bool(keepdims))
