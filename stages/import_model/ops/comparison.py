"""Comparisons, logic, bits, and selection by a condition. Only Where has a gradient."""

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import accept_unsigned
from ltp_pipeline.stages.import_model.registry import op

_BOTH = (0, 1)


@op("Equal", since=7, untrained=_BOTH)
@accept_unsigned
def equal(a: Tensor, b: Tensor) -> Tensor:
    return a == b


@op("Greater", since=7, untrained=_BOTH)
@accept_unsigned
def greater(a: Tensor, b: Tensor) -> Tensor:
    return a > b


@op("GreaterOrEqual", since=12, untrained=_BOTH)
@accept_unsigned
def greater_or_equal(a: Tensor, b: Tensor) -> Tensor:
    return a >= b


@op("Less", since=7, untrained=_BOTH)
@accept_unsigned
def less(a: Tensor, b: Tensor) -> Tensor:
    return a < b


@op("LessOrEqual", since=12, untrained=_BOTH)
@accept_unsigned
def less_or_equal(a: Tensor, b: Tensor) -> Tensor:
    return a <= b


@op("And", since=7)
def logical_and(a: Tensor, b: Tensor) -> Tensor:
    return a & b


@op("Or", since=7)
def logical_or(a: Tensor, b: Tensor) -> Tensor:
    return a | b


@op("Xor", since=7)
def logical_xor(a: Tensor, b: Tensor) -> Tensor:
    return a ^ b


@op("Not")
def logical_not(x: Tensor) -> Tensor:
    return ~x


@op("BitwiseAnd", since=18)
@accept_unsigned
def bitwise_and(a: Tensor, b: Tensor) -> Tensor:
    return a & b


@op("BitwiseOr", since=18)
@accept_unsigned
def bitwise_or(a: Tensor, b: Tensor) -> Tensor:
    return a | b


@op("BitwiseXor", since=18)
@accept_unsigned
def bitwise_xor(a: Tensor, b: Tensor) -> Tensor:
    return a ^ b


@op("BitwiseNot", since=18)
@accept_unsigned
def bitwise_not(x: Tensor) -> Tensor:
    return ~x


@op("IsNaN", since=9, untrained=(0,))
def is_nan(x: Tensor) -> Tensor:
    return x.isnan()


@op("IsInf", since=10, untrained=(0,))
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    if detect_negative and detect_positive:
        return x.isinf()
    if detect_positive:
        return x.isposinf()
    return x.isneginf() if detect_negative else torch.zeros_like(x, dtype=torch.bool)


@op("Where", since=9)
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.where(condition, x, y)
