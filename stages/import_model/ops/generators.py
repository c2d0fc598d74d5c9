"""Operators that create tensors: constants, ranges, random numbers and Dropout."""

# ruff: noqa: ARG001 - every attribute of the standard is a keyword, also where it changes nothing here

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.graph.tensors import MAX_CONSTANT_ELEMENTS
from ltp_pipeline.stages.import_model.ops.common import check_sizes, to_number, to_torch_type
from ltp_pipeline.stages.import_model.registry import op


@op("ConstantOfShape", since=9, constants=(0,))
def constant_of_shape(shape: Tensor, *, value: Tensor | None = None) -> Tensor:
    sizes = check_sizes(shape.tolist())
    if value is None:
        return torch.zeros(sizes)
    return torch.full(sizes, to_number(value), dtype=value.dtype)


@op("Range", since=11, constants=(0, 1, 2))
def range_(start: Tensor, limit: Tensor, delta: Tensor, *, stash_type: int = 1) -> Tensor:
    # Counted in double so that the number of elements is that of the standard's formula, not of
    # rounding.
    first, last, step = to_number(start), to_number(limit), to_number(delta)
    if step == 0 or (last - first) / step > MAX_CONSTANT_ELEMENTS:
        raise ValueError(f"a range from {first} to {last} by {step} is beyond reason")
    index = torch.arange(max(math.ceil((last - first) / step), 0))
    values: Tensor = (index.double() if start.is_floating_point() else index) * step + first
    return values.to(start.dtype)


@op("EyeLike", since=9, constants=(0,))
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    rows, columns = x.shape
    row = torch.arange(rows, device=x.device).unsqueeze(1)
    column = torch.arange(columns, device=x.device)
    return (column - row == k).to(x.dtype if dtype is None else to_torch_type(dtype))


def _make_generator(seed: float | None, device: torch.device) -> torch.Generator | None:
    return None if seed is None else torch.Generator(device).manual_seed(int(seed))


_CPU = torch.device("cpu")


@op("RandomNormal")
def random_normal(
    *,
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    shape: Sequence[int],
) -> Tensor:
    return (
        torch.randn(check_sizes(shape), generator=_make_generator(seed, _CPU)) * scale + mean
    ).to(to_torch_type(dtype))


@op("RandomUniform")
def random_uniform(
    *,
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    shape: Sequence[int],
) -> Tensor:
    return (
        torch.rand(check_sizes(shape), generator=_make_generator(seed, _CPU)) * (high - low) + low
    ).to(to_torch_type(dtype))


@op("RandomNormalLike", constants=(0,))
def random_normal_like(
    x: Tensor,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Tensor:
    noise = torch.randn(x.shape, generator=_make_generator(seed, x.device), device=x.device)
    return (noise * scale + mean).to(x.dtype if dtype is None else to_torch_type(dtype))


@op("RandomUniformLike", constants=(0,))
def random_uniform_like(
    x: Tensor,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Tensor:
    noise = torch.rand(x.shape, generator=_make_generator(seed, x.device), device=x.device)
    return (noise * (high - low) + low).to(x.dtype if dtype is None else to_torch_type(dtype))


@op("Bernoulli", since=15, constants=(0,))
def bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    return torch.bernoulli(x, generator=_make_generator(seed, x.device)).to(
        x.dtype if dtype is None else to_torch_type(dtype)
    )


@op("Multinomial", since=7, constants=(0,))
def multinomial(
    x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Tensor:
    check_sizes([x.shape[0], sample_size])
    drawn = torch.multinomial(
        x.softmax(1), sample_size, replacement=True, generator=_make_generator(seed, x.device)
    )
    return drawn.to(to_torch_type(dtype))


def _apply_dropout(
    x: Tensor, ratio: float, active: bool, n_outputs: int
) -> Tensor | tuple[Tensor, Tensor]:
    if not active or ratio == 0:
        return (x, torch.ones_like(x, dtype=torch.bool)) if n_outputs > 1 else x
    if n_outputs == 1:
        return F.dropout(x, ratio)
    is_kept = torch.rand(x.shape, device=x.device) >= ratio
    return x * is_kept / (1 - ratio), is_kept


@op("Dropout", since=7)
def dropout_7(
    x: Tensor, *, ratio: float = 0.5, training: bool = False, n_outputs: int = 1
) -> Tensor | tuple[Tensor, Tensor]:
    return _apply_dropout(x, ratio, training, n_outputs)


@op("Dropout", since=12, constants=(1, 2))
def dropout_12(
    x: Tensor,
    ratio: Tensor | None = None,
    training_mode: Tensor | None = None,
    *,
    seed: int | None = None,
    training: bool = False,
    n_outputs: int = 1,
) -> Tensor | tuple[Tensor, Tensor]:
    active = training or (training_mode is not None and bool(training_mode))
    return _apply_dropout(x, 0.5 if ratio is None else float(ratio), active, n_outputs)
