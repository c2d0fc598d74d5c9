"""Arithmetic, elementwise and cumulative."""

import functools

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import (
    accept_unsigned,
    positive_axis,
    register_functions,
    to_number,
    widen_unsigned,
)
from ltp_pipeline.stages.import_model.registry import OpFunction, op

register_functions(
    {
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
    }
)
register_functions(
    {
        "Abs": torch.abs,
        "Add": torch.add,
        "Mul": torch.mul,
        "Sign": torch.sign,
        "Sub": torch.sub,
    },
    unsigned=True,
)


@op("Div")
@accept_unsigned
def div(a: Tensor, b: Tensor) -> Tensor:
    if a.is_floating_point() or a.is_complex():
        return a / b
    if not a.dtype.is_signed:
        return torch.div(a, b, rounding_mode="trunc")
    # The processor stops the process where the lowest number is divided by -1.
    is_negation = b == -1
    divisor = torch.where(is_negation, 1, b)
    quotient = torch.div(a, divisor, rounding_mode="trunc")
    return torch.where(is_negation, -a, quotient)


@op("Mod")
@accept_unsigned
def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    if fmod:
        return torch.fmod(a, b)
    return torch.remainder(a, b)


@op("Pow", constants=(1,))
def pow(x: Tensor, y: Tensor) -> Tensor:
    base = widen_unsigned(x)
    y = widen_unsigned(y)
    is_integer = not base.is_floating_point()
    is_number = y.numel() == 1 and y.dim() <= x.dim()
    if is_number and not y.requires_grad and y.device.type == "cpu":
        # A plain number takes torch's fast paths for squares and roots.
        exponent = to_number(y)
        if exponent >= 0 and exponent == int(exponent):
            exponent = int(exponent)
        elif is_integer:
            base = base.double()
        return base.pow(exponent).to(x.dtype)
    if is_integer and not y.is_floating_point() and bool((y < 0).any()):
        base = base.double()
    return base.pow(y.to(base.device)).to(x.dtype)


@op("Max")
@accept_unsigned
def max(*data: Tensor) -> Tensor:
    return functools.reduce(torch.maximum, data)


@op("Min")
@accept_unsigned
def min(*data: Tensor) -> Tensor:
    return functools.reduce(torch.minimum, data)


@op("Sum")
def sum(*data: Tensor) -> Tensor:
    return functools.reduce(torch.add, data)


@op("Mean")
def mean(*data: Tensor) -> Tensor:
    return sum(*data) / len(data)


@op("BitShift")
@accept_unsigned
def bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    if direction == "LEFT":
        return x << y
    return x >> y


def _register_cumulative(name: str, function: OpFunction, start: int) -> None:
    """Register an operator that sums or multiplies along an axis, beginning with `start`."""

    @op(name, constants=(1,))
    @accept_unsigned
    def accumulate(
        x: Tensor,
        axis: Tensor,
        *,
        exclusive: int = 0,
        reverse: int = 0,
    ) -> Tensor:
        dim = positive_axis(int(axis), x.dim())
        if reverse:
            x = x.flip(dim)
        if exclusive:
            first = torch.full_like(x.narrow(dim, 0, 1), start)
            others = x.narrow(dim, 0, x.shape[dim] - 1)
            x = torch.cat([first, others], dim)
        y: Tensor = function(x, dim).to(x.dtype)
        return y.flip(dim) if reverse else y


_register_cumulative("CumSum", torch.cumsum, 0)
_register_cumulative("CumProd", torch.cumprod, 1)
