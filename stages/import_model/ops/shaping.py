"""Shapes, layouts and types.

Shapes are integer tensors on the CPU, whatever the device of the data.
"""

import math
from collections.abc import Sequence
from operator import mul

import numpy as np
import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import (
    Axes,
    OptionalInts,
    check_sizes,
    make_range,
    positive_axes,
    positive_axis,
    to_ints,
    to_torch_type,
)
from ltp_pipeline.stages.import_model.registry import op


@op("Identity")
def identity(x: Tensor) -> Tensor:
    return x


@op("Shape", constants=(0,))
def shape(x: Tensor, *, end: int | None = None, start: int = 0) -> Tensor:
    return torch.tensor(x.shape[start:end], dtype=torch.int64)


@op("Size", constants=(0,))
def size(x: Tensor) -> Tensor:
    return torch.tensor(x.numel(), dtype=torch.int64)


@op("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    if axis < 0:
        axis += x.dim()
    rows = math.prod(x.shape[:axis])
    columns = math.prod(x.shape[axis:])
    return x.reshape(rows, columns)


@op("Reshape", constants=(1,))
def reshape(x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    sizes = shape.tolist()
    if not allowzero:
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return x.reshape(sizes)


@op("Transpose")
def transpose(x: Tensor, *, perm: OptionalInts = None) -> Tensor:
    if perm is None:
        perm = range(x.dim() - 1, -1, -1)
    return x.permute(*perm)


@op("Squeeze", constants=(1,))
def squeeze(x: Tensor, axes: Axes = None) -> Tensor:
    dims = to_ints(axes)
    if not dims:
        return x.squeeze()
    if any(x.shape[dim] != 1 for dim in dims):
        raise ValueError(f"cannot squeeze axes {dims} of shape {tuple(x.shape)}")
    return x.squeeze(dims)


@op("Unsqueeze", constants=(1,))
def unsqueeze(x: Tensor, axes: Tensor | Sequence[int]) -> Tensor:
    dims = to_ints(axes)
    rank = x.dim() + len(dims)
    for dim in sorted(positive_axis(dim, rank) for dim in dims):
        x = x.unsqueeze(dim)
    return x


@op("Concat")
def concat(*inputs: Tensor, axis: int) -> Tensor:
    check_sizes([sum(x.numel() for x in inputs)], inputs[0])
    return torch.cat(inputs, axis)


@op("Split", constants=(1,))
def split(
    x: Tensor,
    split: Axes = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    n_outputs: int = 1,
) -> tuple[Tensor, ...]:
    sizes = to_ints(split)
    if not sizes:  # equal parts; the last ones are smaller or empty
        count = num_outputs or n_outputs
        rest = x.shape[axis]
        part = -(-rest // count)
        for _ in range(count):
            sizes.append(min(part, rest))
            rest -= sizes[-1]
    return torch.split_with_sizes(x, sizes, axis)


@op("Expand", constants=(1,))
def expand(x: Tensor, shape: Tensor) -> Tensor:
    sizes = np.broadcast_shapes(x.shape, shape.tolist())
    return x.expand(check_sizes(sizes, x))


@op("Tile", constants=(1,))
def tile(x: Tensor, repeats: Tensor) -> Tensor:
    counts = repeats.tolist()
    check_sizes(map(mul, x.shape, counts), x)
    return x.repeat(counts)


@op("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    b, c, h, w = x.shape
    depth = c // blocksize**2
    if mode == "DCR":
        blocks = x.reshape(b, blocksize, blocksize, depth, h, w)
        blocks = blocks.permute(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(b, depth, blocksize, blocksize, h, w)
        blocks = blocks.permute(0, 1, 4, 2, 5, 3)
    return blocks.reshape(b, depth, h * blocksize, w * blocksize)


@op("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    b, c, h, w = x.shape
    rows = h // blocksize
    columns = w // blocksize
    blocks = x.reshape(b, c, rows, blocksize, columns, blocksize)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    blocks = blocks.permute(order)
    return blocks.reshape(b, c * blocksize**2, rows, columns)


@op("Cast")
def cast(
    x: Tensor,
    *,
    to: int,
    saturate: int = 1,
    round_mode: str = "up",
) -> Tensor:
    # `saturate` and `round_mode` speak of 8-bit floats, which do not get here.
    return x.to(to_torch_type(to))


@op("CastLike", constants=(1,))
def cast_like(
    x: Tensor,
    target_type: Tensor,
    *,
    saturate: int = 1,
    round_mode: str = "up",
) -> Tensor:
    return x.to(target_type.dtype)


@op("BitCast", untrained=(0,))
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    return x.view(to_torch_type(to))


@op("Trilu", constants=(1,))
def trilu(x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> Tensor:
    diagonal = 0 if k is None else int(k)
    limit = (1 << 31) - 1
    diagonal = max(-limit, min(diagonal, limit))
    return x.triu(diagonal) if upper else x.tril(diagonal)


@op("ReverseSequence", constants=(1,))
def reverse_sequence(
    x: Tensor,
    sequence_lens: Tensor,
    *,
    batch_axis: int = 1,
    time_axis: int = 0,
) -> Tensor:
    batch, time = positive_axes([batch_axis, time_axis], x.dim())
    steps_first = x.movedim((time, batch), (0, 1))
    reversed_steps = reverse_time(steps_first, sequence_lens.to(x.device).long())
    return reversed_steps.movedim((0, 1), (time, batch))


def reverse_time(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverse the steps of each sequence within its own length.

    Args:
        x: Sequences, with the steps on the first axis and the sequences on the second.
        lengths: Number of steps of each sequence; the steps behind them stay.
    """
    steps = make_range(len(x), x).unsqueeze(1)
    source = torch.where(steps < lengths, lengths - 1 - steps, steps)
    view = [*source.shape, *[1] * (x.dim() - 2)]
    return x.gather(0, source.reshape(view).expand_as(x))
