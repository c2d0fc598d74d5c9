"""Comparisons, logic, bits, and selection by a condition. Only Where has a gradient."""

import operator

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import register_functions
from ltp_pipeline.stages.import_model.registry import op

register_functions(
    {
        "Equal": operator.eq,
        "Greater": operator.gt,
        "GreaterOrEqual": operator.ge,
        "Less": operator.lt,
        "LessOrEqual": operator.le,
    },
    unsigned=True,
    untrained=(0, 1),
)
register_functions(
    {
        "BitwiseAnd": torch.bitwise_and,
        "BitwiseNot": torch.bitwise_not,
        "BitwiseOr": torch.bitwise_or,
        "BitwiseXor": torch.bitwise_xor,
    },
    unsigned=True,
)
register_functions(
    {
        "And": torch.logical_and,
        "Not": torch.logical_not,
        "Or": torch.logical_or,
        "Where": torch.where,
        "Xor": torch.logical_xor,
    }
)
register_functions({"IsNaN": torch.isnan}, untrained=(0,))


@op("IsInf", untrained=(0,))
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    if detect_negative and detect_positive:
        return x.isinf()
    if detect_positive:
        return x.isposinf()
    if detect_negative:
        return x.isneginf()
    return torch.zeros_like(x, dtype=torch.bool)
