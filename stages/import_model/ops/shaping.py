"""Shapes, layouts and types.

Shapes are integer tensors on the CPU, whatever the device of the data.
"""

# ruff: noqa: ARG001 - every attribute of the standard is a keyword, also where it changes nothing here

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import (
    check_sizes,
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
    axis = axis + x.dim() if axis < 0 else axis
    rows = math.prod(x.shape[:axis])
    return x.reshape(rows, math.prod(x.shape[axis:]))


@op("Reshape", since=5, constants=(1,))
def reshape(x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    sizes = shape.tolist()
    if not allowzero:
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return x.reshape(sizes)


@op("Transpose")
def transpose(x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    return x.permute(*(perm if perm is not None else range(x.dim() - 1, -1, -1)))


@op("Squeeze")
def squeeze_1(x: Tensor, *, axes: Sequence[int] | None = None) -> Tensor:
    return _squeeze_axes(x, to_ints(axes))


@op("Squeeze", since=13, constants=(1,))
def squeeze_13(x: Tensor, axes: Tensor | None = None) -> Tensor:
    return _squeeze_axes(x, to_ints(axes))


def _squeeze_axes(x: Tensor, axes: list[int]) -> Tensor:
    if not axes:
        return x.squeeze()
    if any(x.shape[a] != 1 for a in axes):
        raise ValueError(f"cannot squeeze axes {axes} of shape {tuple(x.shape)}")
    return x.squeeze(axes)


@op("Unsqueeze")
def unsqueeze_1(x: Tensor, *, axes: Sequence[int]) -> Tensor:
    return _unsqueeze_axes(x, to_ints(axes))


@op("Unsqueeze", since=13, constants=(1,))
def unsqueeze_13(x: Tensor, axes: Tensor) -> Tensor:
    return _unsqueeze_axes(x, to_ints(axes))


def _unsqueeze_axes(x: Tensor, axes: list[int]) -> Tensor:
    for axis in sorted(positive_axes(axes, x.dim() + len(axes)) if axes else []):
        x = x.unsqueeze(axis)
    return x


@op("Concat", since=4)
def concat(*inputs: Tensor, axis: int) -> Tensor:
    check_sizes([sum(x.numel() for x in inputs)], inputs[0])
    return torch.cat(inputs, axis)


@op("Split", since=2)
def split_2(
    x: Tensor, *, axis: int = 0, split: Sequence[int] | None = None, n_outputs: int = 1
) -> tuple[Tensor, ...]:
    return _split_axis(x, axis, to_ints(split), n_outputs)


@op("Split", since=13, constants=(1,))
def split_13(
    x: Tensor,
    split: Tensor | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    n_outputs: int = 1,
) -> tuple[Tensor, ...]:
    return _split_axis(x, axis, to_ints(split), num_outputs or n_outputs)


def _split_axis(x: Tensor, axis: int, sizes: list[int], parts: int) -> tuple[Tensor, ...]:
    if not sizes:
        total = x.shape[axis]
        part = -(-total // parts)
        sizes = [part] * (total // part if part else 0)
        sizes += [total - sum(sizes)] + [0] * (parts - len(sizes) - 1) if len(sizes) < parts else []
    return torch.split_with_sizes(x, sizes, axis)


@op("Expand", since=8, constants=(1,))
def expand(x: Tensor, shape: Tensor) -> Tensor:
    return x.expand(check_sizes(np.broadcast_shapes(tuple(x.shape), tuple(shape.tolist())), x))


@op("Tile", since=6, constants=(1,))
def tile(x: Tensor, repeats: Tensor) -> Tensor:
    counts = repeats.tolist()
    check_sizes([s * r for s, r in zip(x.shape, counts, strict=True)], x)
    return x.repeat(counts)


@op("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    b, c, h, w = x.shape
    if mode == "DCR":
        y = x.reshape(b, blocksize, blocksize, c // blocksize**2, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(b, c // blocksize**2, blocksize, blocksize, h, w).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(b, c // blocksize**2, h * blocksize, w * blocksize)


@op("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    b, c, h, w = x.shape
    y = x.reshape(b, c, h // blocksize, blocksize, w // blocksize, blocksize)
    y = y.permute(0, 3, 5, 1, 2, 4) if mode == "DCR" else y.permute(0, 1, 3, 5, 2, 4)
    return y.reshape(b, c * blocksize**2, h // blocksize, w // blocksize)


@op("Cast", since=6)
def cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    # `saturate` and `round_mode` speak of 8-bit floats, which do not get here.
    return x.to(to_torch_type(to))


@op("CastLike", since=15, constants=(1,))
def cast_like(
    x: Tensor, target_type: Tensor, *, saturate: int = 1, round_mode: str = "up"
) -> Tensor:
    return x.to(target_type.dtype)


@op("BitCast", since=26, untrained=(0,))
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    return x.view(to_torch_type(to))


@op("CenterCropPad", since=18, constants=(1,))
def center_crop_pad(x: Tensor, shape: Tensor, *, axes: Sequence[int] | None = None) -> Tensor:
    output_sizes = shape.tolist()
    for axis, size in zip(positive_axes(axes, x.dim()), output_sizes, strict=True):
        have = x.shape[axis]
        if size <= have:
            x = x.narrow(axis, (have - size) // 2, size)
            continue
        before = (size - have) // 2
        sizes = [size - have - before if i == axis else s for i, s in enumerate(x.shape)]
        ends = [x.new_zeros(check_sizes(sizes))]
        sizes[axis] = before
        x = torch.cat([x.new_zeros(check_sizes(sizes)), x, *ends], axis)
    return x


@op("Trilu", since=14, constants=(1,))
def trilu(x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> Tensor:
    diagonal = 0 if k is None else int(k)
    diagonal = max(-(1 << 31), min(diagonal, (1 << 31) - 1))
    return x.triu(diagonal) if upper else x.tril(diagonal)


@op("ReverseSequence", since=10, constants=(1,))
def reverse_sequence(
    x: Tensor, sequence_lens: Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    batch, time = positive_axis(batch_axis, x.dim()), positive_axis(time_axis, x.dim())
    lengths = sequence_lens.to(x.device).long().unsqueeze(1)
    steps = torch.arange(x.shape[time], device=x.device).unsqueeze(0)
    source = torch.where(steps < lengths, lengths - 1 - steps, steps)
    source = source if batch < time else source.T
    view = [s if i in (batch, time) else 1 for i, s in enumerate(x.shape)]
    return x.gather(time, source.reshape(view).expand(x.shape))
