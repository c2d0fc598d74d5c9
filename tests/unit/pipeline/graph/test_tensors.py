"""Attention masks among stored tensors."""

import ml_dtypes
import numpy as np
import pytest

from ltp_pipeline.graph.tensors import is_attention_mask

LOW = np.triu(np.full((4, 4), -1e4, np.float32), 1)


@pytest.mark.parametrize(
    "array",
    [
        LOW,
        LOW.astype(np.float16),
        LOW.astype(ml_dtypes.bfloat16),
        np.where(LOW < 0, np.finfo(np.float32).min, LOW),
        np.where(LOW < 0, -np.inf, LOW),
        np.float32([1.0, np.nan]),
    ],
)
def test_attention_masks_are_recognized(array: np.ndarray) -> None:
    assert is_attention_mask(array)


@pytest.mark.parametrize(
    "array",
    [np.float32([0, -99]), np.float32([-1e4]), np.float32([0, -100, 1]), np.zeros(3), np.ones(0)],
)
def test_arrays_that_resemble_a_mask_are_not_recognized(array: np.ndarray) -> None:
    assert not is_attention_mask(array)
