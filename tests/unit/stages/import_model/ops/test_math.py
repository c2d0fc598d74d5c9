"""Operators of arithmetic, where integers end."""

import pytest
import torch

from ltp_pipeline.stages.import_model.ops.math import div


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_div_lowest_integer_by_minus_one_is_itself(dtype: torch.dtype) -> None:
    lowest = torch.iinfo(dtype).min
    quotients = div(
        torch.tensor([lowest, -6, 7, -7], dtype=dtype), torch.tensor([-1, -1, 2, 2], dtype=dtype)
    )
    assert quotients.tolist() == [lowest, 6, 3, -3]
    assert quotients.dtype == dtype


def test_div_by_highest_unsigned_integer_is_exact() -> None:
    quotients = div(
        torch.tensor([200, 7], dtype=torch.uint8), torch.tensor([255, 2], dtype=torch.uint8)
    )
    assert quotients.tolist() == [0, 3]
