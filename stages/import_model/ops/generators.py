"""Operators that create tensors: constants, ranges, random numbers and Dropout."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.graph.tensors import MAX_CONSTANT_ELEMENTS
from ltp_pipeline.stages.import_model.ops.common import (
    check_sizes,
    make_range,
    to_number,
    to_torch_type,
)
from ltp_pipeline.stages.import_model.registry import op


@op("ConstantOfShape", constants=(0,))
def constant_of_shape(shape: Tensor, *, value: Tensor | None = None) -> Tensor:
    sizes = check_sizes(shape.tolist())
    if value is None:
        return torch.zeros(sizes)
    return torch.full(sizes, to_number(value), dtype=value.dtype)


@op("Range", constants=(0, 1, 2))
def range_(
    start: Tensor,
    limit: Tensor,
    delta: Tensor,
    *,
    stash_type: int = 1,
) -> Tensor:
    # Counted in double so that the number of elements is that of the standard's formula, not of
    # rounding.
    first = to_number(start)
    last = to_number(limit)
    step = to_number(delta)
    if step == 0 or (last - first) / step > MAX_CONSTANT_ELEMENTS:
        raise ValueError(f"a range from {first} to {last} by {step} is beyond reason")
    count = max(math.ceil((last - first) / step), 0)
    index = torch.arange(count)
    if start.is_floating_point():
        index = index.double()
    values: Tensor = index * step + first
    return values.to(start.dtype)


@op("EyeLike", constants=(0,))
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    rows, columns = x.shape
    row = make_range(rows, x).unsqueeze(1)
    column = make_range(columns, x)
    return (column - row == k).to(_resolve_type(dtype, x))


def _resolve_type(dtype: int | None, x: Tensor) -> torch.dtype:
    return x.dtype if dtype is None else to_torch_type(dtype)


def _make_generator(seed: float | None, x: Tensor) -> torch.Generator | None:
    """Return a generator with the seed of a node; None for torch's own one."""
    if seed is None:
        return None
    return torch.Generator(x.device).manual_seed(int(seed))


@op("RandomNormalLike", constants=(0,))
def random_normal_like(
    x: Tensor,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Tensor:
    generator = _make_generator(seed, x)
    noise = torch.randn(x.shape, generator=generator, device=x.device)
    noise = noise * scale + mean
    return noise.to(_resolve_type(dtype, x))


@op("RandomUniformLike", constants=(0,))
def random_uniform_like(
    x: Tensor,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Tensor:
    generator = _make_generator(seed, x)
    noise = torch.rand(x.shape, generator=generator, device=x.device)
    noise = noise * (high - low) + low
    return noise.to(_resolve_type(dtype, x))


@op("RandomNormal")
def random_normal(
    *,
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    shape: Sequence[int],
) -> Tensor:
    x = torch.empty(check_sizes(shape))
    return random_normal_like(x, dtype=dtype, mean=mean, scale=scale, seed=seed)


@op("RandomUniform")
def random_uniform(
    *,
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    shape: Sequence[int],
) -> Tensor:
    x = torch.empty(check_sizes(shape))
    return random_uniform_like(x, dtype=dtype, high=high, low=low, seed=seed)


@op("Bernoulli", constants=(0,))
def bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    sample = torch.bernoulli(x, generator=_make_generator(seed, x))
    return sample.to(_resolve_type(dtype, x))


@op("Multinomial", constants=(0,))
def multinomial(
    x: Tensor,
    *,
    dtype: int = 6,
    sample_size: int = 1,
    seed: float | None = None,
) -> Tensor:
    check_sizes([x.shape[0], sample_size])
    generator = _make_generator(seed, x)
    sample = torch.multinomial(x.softmax(1), sample_size, replacement=True, generator=generator)
    return sample.to(to_torch_type(dtype))


@op("Dropout", constants=(1, 2))
def dropout(
    x: Tensor,
    ratio: Tensor | float | None = 0.5,
    training_mode: Tensor | None = None,
    *,
    seed: int | None = None,
    training: bool = False,
    n_outputs: int = 1,
) -> Tensor | tuple[Tensor, Tensor]:
    rate = 0.5 if ratio is None else float(ratio)
    is_active = training or (training_mode is not None and bool(training_mode))
    if n_outputs == 1:
        return F.dropout(x, rate) if is_active else x
    if not is_active or rate == 0:
        return x, torch.ones_like(x, dtype=torch.bool)
    mask = torch.rand(x.shape, device=x.device) >= rate
    return x * mask / (1 - rate), mask
