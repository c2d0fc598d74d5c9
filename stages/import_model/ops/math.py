"""Arithmetic, elementwise and cumulative."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import (
    accept_unsigned,
    positive_axis,
    to_number,
    widen_unsigned,
)
from ltp_pipeline.stages.import_model.registry import op


def _register_unary(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def apply(x: Tensor) -> Tensor:
        return function(x)

    return apply


for _name, _function in {
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Det": torch.linalg.det,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "Log": torch.log,
    "Neg": torch.neg,
    "Reciprocal": torch.reciprocal,
    "Round": torch.round,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
}.items():
    op(_name)(_register_unary(_function))


@op("Abs")
@accept_unsigned
def abs(x: Tensor) -> Tensor:
    return x.abs()


@op("Sign")
@accept_unsigned
def sign(x: Tensor) -> Tensor:
    return x.sign()


@op("Add", since=7)
@accept_unsigned
def add(a: Tensor, b: Tensor) -> Tensor:
    return a + b


@op("Sub", since=7)
@accept_unsigned
def sub(a: Tensor, b: Tensor) -> Tensor:
    return a - b


@op("Mul", since=7)
@accept_unsigned
def mul(a: Tensor, b: Tensor) -> Tensor:
    return a * b


@op("Div", since=7)
@accept_unsigned
def div(a: Tensor, b: Tensor) -> Tensor:
    if a.is_floating_point() or a.is_complex():
        return a / b
    if not a.dtype.is_signed:
        return torch.div(a, b, rounding_mode="trunc")
    # The processor stops the process where the lowest number is divided by -1.
    return torch.where(b == -1, -a, torch.div(a, torch.where(b == -1, 1, b), rounding_mode="trunc"))


@op("Mod", since=10)
@accept_unsigned
def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


@op("Pow", since=7, constants=(1,))
def pow(x: Tensor, y: Tensor) -> Tensor:
    base, y = widen_unsigned(x), widen_unsigned(y)
    if y.numel() == 1 and y.dim() <= x.dim() and not y.requires_grad and y.device.type == "cpu":
        # A plain number takes torch's fast paths for squares and roots.
        exponent = to_number(y)
        exponent = int(exponent) if exponent == int(exponent) and exponent >= 0 else exponent
        base = base if base.is_floating_point() or isinstance(exponent, int) else base.double()
        return base.pow(exponent).to(x.dtype)
    if not base.is_floating_point() and not y.is_floating_point() and bool((y < 0).any()):
        base = base.double()
    return base.pow(y.to(base.device)).to(x.dtype)


@op("Max", since=6)
@accept_unsigned
def max(*data: Tensor) -> Tensor:
    return functools.reduce(torch.maximum, data)


@op("Min", since=6)
@accept_unsigned
def min(*data: Tensor) -> Tensor:
    return functools.reduce(torch.minimum, data)


@op("Sum", since=6)
def sum(*data: Tensor) -> Tensor:
    return functools.reduce(torch.add, data)


@op("Mean", since=6)
def mean(*data: Tensor) -> Tensor:
    return functools.reduce(torch.add, data) / len(data)


@op("BitShift", since=11)
@accept_unsigned
def bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    return x << y if direction == "LEFT" else x >> y


def _accumulate(
    function: Callable[[Tensor, int], Tensor],
    start: int,
    x: Tensor,
    axis: int,
    exclusive: int,
    reverse: int,
) -> Tensor:
    axis = positive_axis(axis, x.dim())
    if reverse:
        x = x.flip(axis)
    if exclusive:
        first = torch.full_like(x.narrow(axis, 0, 1), start)
        x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
    y = function(x, axis).to(x.dtype)
    return y.flip(axis) if reverse else y


@op("CumSum", since=11, constants=(1,))
@accept_unsigned
def cum_sum(x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _accumulate(torch.cumsum, 0, x, int(axis), exclusive, reverse)


@op("CumProd", since=26, constants=(1,))
@accept_unsigned
def cum_prod(x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _accumulate(torch.cumprod, 1, x, int(axis), exclusive, reverse)
