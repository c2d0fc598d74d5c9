"""Read and write elements by index: Gather*, Scatter*, Slice and selection by value."""

# ruff: noqa: ARG001 - every attribute of the standard is a keyword, also where it changes nothing here

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import (
    accept_unsigned,
    check_sizes,
    positive_axis,
    to_ints,
    to_number,
    widen_unsigned,
    wrap_indices,
)
from ltp_pipeline.stages.import_model.registry import op

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@op("Gather", constants=(1,))
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    if indices.dim() == 0 and indices.device.type == "cpu":
        return x.select(axis, int(indices))
    axis = positive_axis(axis, x.dim())
    flat = wrap_indices(indices.to(x.device).reshape(-1), x.shape[axis])
    sizes = check_sizes([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]], indices)
    return _select_rows(x, flat, axis=axis).reshape(sizes)


@accept_unsigned
def _select_rows(x: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    return x.index_select(axis, indices)


@op("GatherElements", since=11, constants=(1,))
@accept_unsigned
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return x.gather(axis, wrap_indices(indices.to(x.device), x.shape[axis]))


@op("GatherND", since=11, constants=(1,))
@accept_unsigned
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    indices = indices.to(x.device)
    batch, depth = x.shape[:batch_dims], indices.shape[-1]
    flat = indices.reshape(math.prod(batch), -1, depth)
    rows = x.reshape(math.prod(batch), *x.shape[batch_dims:])
    first = torch.arange(rows.shape[0], device=x.device).unsqueeze(1).expand(flat.shape[:2])
    selected = rows[(first, *(wrap_indices(flat[..., i], rows.shape[i + 1]) for i in range(depth)))]
    return selected.reshape(*indices.shape[:-1], *x.shape[batch_dims + depth :])


@op("Scatter", since=9, constants=(1,))
def scatter(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0) -> Tensor:
    return scatter_elements(x, indices, updates, axis=axis)


@op("ScatterElements", since=11, constants=(1,))
@accept_unsigned
def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    where = wrap_indices(indices.to(x.device), x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, where, updates)
    return x.scatter_reduce(axis, where, updates, _REDUCTIONS[reduction])


@op("ScatterND", since=11, constants=(1,))
@accept_unsigned
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    indices = indices.to(x.device)
    depth = indices.shape[-1]
    rows = x.reshape(math.prod(x.shape[:depth]), -1)
    linear = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=x.device)
    for i in range(depth):
        linear = linear * x.shape[i] + wrap_indices(indices[..., i], x.shape[i])
    linear = linear.reshape(-1)
    values = updates.reshape(linear.shape[0], rows.shape[1]).to(
        x.dtype
    )  # autocast may have made them differ
    if reduction == "none":
        return rows.index_put((linear,), values).reshape(x.shape)
    where = linear.unsqueeze(1).expand_as(values)
    return rows.scatter_reduce(0, where, values, _REDUCTIONS[reduction]).reshape(x.shape)


@op("TensorScatter", since=24, constants=(2,))
def tensor_scatter(
    past_cache: Tensor,
    update: Tensor,
    write_indices: Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Tensor:
    axis = positive_axis(axis, past_cache.dim())
    steps = torch.arange(update.shape[axis], device=past_cache.device).unsqueeze(0)
    starts = (
        steps.new_zeros(update.shape[0])
        if write_indices is None
        else write_indices.to(past_cache.device)
    )
    where = starts.unsqueeze(1) + steps
    if mode == "circular":
        where = where % past_cache.shape[axis]
    view = [s if i in (0, axis) else 1 for i, s in enumerate(update.shape)]
    return past_cache.scatter(axis, where.reshape(view).expand(update.shape), update)


@op("Slice")
def slice_1(
    x: Tensor, *, axes: Sequence[int] | None = None, ends: Sequence[int], starts: Sequence[int]
) -> Tensor:
    return _slice_axes(x, list(starts), list(ends), to_ints(axes), [])


@op("Slice", since=10, constants=(1, 2, 3, 4))
def slice_10(
    x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None
) -> Tensor:
    return _slice_axes(x, to_ints(starts), to_ints(ends), to_ints(axes), to_ints(steps))


def _slice_axes(
    x: Tensor, starts: list[int], ends: list[int], axes: list[int], steps: list[int]
) -> Tensor:
    axes = axes or list(range(len(starts)))
    steps = steps or [1] * len(starts)
    cut: list[slice] = [slice(None)] * x.dim()
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        first, last, step = slice(start, end, step).indices(x.shape[axis])
        if step > 0:
            cut[axis] = slice(first, max(first, last), step)
        else:  # torch has no negative steps
            x = _select_rows(
                x, torch.arange(first, min(first, last), step, device=x.device), axis=axis
            )
    return x[tuple(cut)]


@op("Compress", since=9, constants=(1,))
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    keep = condition.to(x.device).nonzero().squeeze(1)
    return _select_rows(x.reshape(-1) if axis is None else x, keep, axis=axis or 0)


@op("NonZero", since=9, untrained=(0,))
def non_zero(x: Tensor) -> Tensor:
    return (
        widen_unsigned(x).nonzero().T
        if x.dim()
        else torch.zeros((0, int(x != 0)), dtype=torch.int64)
    )


@op("TopK")
def top_k_1(x: Tensor, *, axis: int = -1, k: int) -> tuple[Tensor, Tensor]:
    return _select_top_k(x, k, axis, largest=True)


@op("TopK", since=10, constants=(1,))
def top_k_10(
    x: Tensor, k: Tensor, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Tensor, Tensor]:
    return _select_top_k(x, int(k.reshape(())), axis, bool(largest))


def _select_top_k(x: Tensor, k: int, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
    # A stable sort: of equal elements the one with the lower index comes first, which torch.topk
    # does not promise.
    values, indices = widen_unsigned(x).sort(dim=axis, descending=largest, stable=True)
    return values.narrow(axis, 0, k).to(x.dtype), indices.narrow(axis, 0, k)


@op("OneHot", since=9, constants=(1,), untrained=(0, 2))
def one_hot(indices: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1) -> Tensor:
    count = int(to_number(depth))
    check_sizes([*indices.shape, count])
    axis = positive_axis(axis, indices.dim() + 1)
    where = wrap_indices(widen_unsigned(indices), count).unsqueeze(axis)
    classes = torch.arange(count, device=where.device).reshape([-1] + [1] * (indices.dim() - axis))
    off, on = values.to(where.device)
    return torch.where(where == classes, on, off)


@op("Unique", since=11, untrained=(0,))
def unique(
    x: Tensor, *, axis: int | None = None, sorted: int = 1
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    flat = x.reshape(-1) if axis is None else x
    axis = 0 if axis is None else positive_axis(axis, x.dim())
    values, inverse, counts = torch.unique(
        widen_unsigned(flat), return_inverse=True, return_counts=True, dim=axis
    )
    position = torch.arange(inverse.shape[0], device=x.device)
    first = torch.full_like(counts, inverse.shape[0]).scatter_reduce(0, inverse, position, "amin")
    if not sorted:
        order = first.argsort()
        values, counts, first = values.index_select(axis, order), counts[order], first[order]
        inverse = order.argsort()[inverse]
    return values.to(x.dtype), first, inverse, counts
