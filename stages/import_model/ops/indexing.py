"""Read and write elements by index: Gather*, Scatter*, Slice and selection by value."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import (
    Axes,
    accept_unsigned,
    check_sizes,
    make_range,
    make_view_shape,
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
    flat = indices.to(x.device).reshape(-1)
    positions = wrap_indices(flat, x.shape[axis])
    sizes = [*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]]
    check_sizes(sizes, indices)
    return _select_rows(x, positions, axis=axis).reshape(sizes)


@accept_unsigned
def _select_rows(x: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    return x.index_select(axis, indices)


@op("GatherElements", constants=(1,))
@accept_unsigned
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    positions = wrap_indices(indices.to(x.device), x.shape[axis])
    return x.gather(axis, positions)


@op("GatherND", constants=(1,))
@accept_unsigned
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    indices = indices.to(x.device)
    depth = indices.shape[-1]
    num_batches = math.prod(x.shape[:batch_dims])
    batches = x.reshape(num_batches, *x.shape[batch_dims:])
    flat = indices.reshape(num_batches, -1, depth)
    positions = [make_range(num_batches, x).unsqueeze(1)]
    for i in range(depth):
        positions.append(wrap_indices(flat[..., i], batches.shape[i + 1]))
    selected = batches[tuple(positions)]
    return selected.reshape(*indices.shape[:-1], *x.shape[batch_dims + depth :])


@op("Scatter", constants=(1,))
def scatter(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0) -> Tensor:
    return scatter_elements(x, indices, updates, axis=axis)


@op("ScatterElements", constants=(1,))
@accept_unsigned
def scatter_elements(
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Tensor:
    positions = wrap_indices(indices.to(x.device), x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, positions, updates)
    return x.scatter_reduce(axis, positions, updates, _REDUCTIONS[reduction])


@op("ScatterND", constants=(1,))
@accept_unsigned
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    indices = indices.to(x.device)
    depth = indices.shape[-1]
    num_rows = math.prod(x.shape[:depth])
    rows = x.reshape(num_rows, -1)
    position = torch.zeros_like(indices[..., 0], dtype=torch.int64)
    for i, size in enumerate(x.shape[:depth]):
        position = position * size + wrap_indices(indices[..., i], size)
    position = position.reshape(-1)
    values = updates.reshape(len(position), rows.shape[1])
    values = values.to(x.dtype)  # autocast may have made them differ
    if reduction == "none":
        y = rows.index_put((position,), values)
    else:
        places = position.unsqueeze(1).expand_as(values)
        y = rows.scatter_reduce(0, places, values, _REDUCTIONS[reduction])
    return y.reshape(x.shape)


@op("TensorScatter", constants=(2,))
def tensor_scatter(
    past_cache: Tensor,
    update: Tensor,
    write_indices: Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Tensor:
    axis = positive_axis(axis, past_cache.dim())
    positions = make_range(update.shape[axis], past_cache)
    if write_indices is not None:
        positions = positions + write_indices.to(past_cache.device).unsqueeze(1)
    if mode == "circular":
        positions = positions % past_cache.shape[axis]
    view = make_view_shape(update.dim(), axis)
    if positions.dim() == 2:
        view[0] = len(positions)
    positions = positions.reshape(view).expand(update.shape)
    return past_cache.scatter(axis, positions, update)


@op("Slice", constants=(1, 2, 3, 4))
def slice_(
    x: Tensor,
    starts: Tensor | Sequence[int],
    ends: Tensor | Sequence[int],
    axes: Axes = None,
    steps: Tensor | None = None,
) -> Tensor:
    first = to_ints(starts)
    last = to_ints(ends)
    dims = to_ints(axes) or range(len(first))
    strides = to_ints(steps) or [1] * len(first)
    sliced = [slice(None)] * x.dim()
    for start, end, axis, step in zip(first, last, dims, strides, strict=True):
        size = x.shape[axis]
        start, stop, step = slice(start, end, step).indices(size)
        if step > 0:
            sliced[axis] = slice(start, max(start, stop), step)
        else:  # torch has no negative steps
            stop = min(start, stop)
            positions = torch.arange(start, stop, step, device=x.device)
            x = _select_rows(x, positions, axis=axis)
    return x[tuple(sliced)]


@op("Compress", constants=(1,))
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    positions = condition.to(x.device).nonzero().squeeze(1)
    if axis is None:
        return _select_rows(x.reshape(-1), positions, axis=0)
    return _select_rows(x, positions, axis=axis)


@op("NonZero", untrained=(0,))
def non_zero(x: Tensor) -> Tensor:
    return widen_unsigned(x).nonzero().T


@op("TopK", constants=(1,))
def top_k(
    x: Tensor,
    k: Tensor | int,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,
) -> tuple[Tensor, Tensor]:
    # A stable sort: of equal elements the one with the lower index comes first, which torch.topk
    # does not promise.
    values, indices = widen_unsigned(x).sort(dim=axis, descending=bool(largest), stable=True)
    count = int(to_number(k))
    values = values.narrow(axis, 0, count).to(x.dtype)
    return values, indices.narrow(axis, 0, count)


@op("OneHot", constants=(1,), untrained=(0, 2))
def one_hot(indices: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1) -> Tensor:
    count = int(to_number(depth))
    check_sizes([*indices.shape, count])
    rank = indices.dim() + 1
    axis = positive_axis(axis, rank)
    positions = wrap_indices(widen_unsigned(indices), count).unsqueeze(axis)
    classes = make_range(count, positions).reshape(make_view_shape(rank, axis))
    off, on = values.to(positions.device)
    return torch.where(positions == classes, on, off)


@op("Unique", untrained=(0,))
def unique(
    x: Tensor, *, axis: int | None = None, sorted: int = 1
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if axis is None:
        x = x.reshape(-1)
    dim = positive_axis(axis or 0, x.dim())
    values, inverse, counts = torch.unique(
        widen_unsigned(x), return_inverse=True, return_counts=True, dim=dim
    )
    position = make_range(len(inverse), x)
    first = torch.full_like(counts, len(inverse))
    first = first.scatter_reduce(0, inverse, position, "amin")
    if not sorted:
        order = first.argsort()
        values = values.index_select(dim, order)
        counts = counts[order]
        first = first[order]
        inverse = order.argsort()[inverse]
    return values.to(x.dtype), first, inverse, counts
