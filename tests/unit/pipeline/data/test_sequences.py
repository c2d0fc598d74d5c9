"""Sequences of uneven length: their padding, their masks, and their offsets."""

from dataclasses import replace

import numpy as np
import pytest

from ltp_pipeline.data.dataset import ArraySamples
from ltp_pipeline.data.sequences import (
    MaskSamples,
    RaggedSamples,
    can_hold,
    check_offsets,
    select_rows,
)
from ltp_pipeline.errors import InputError

IDS = RaggedSamples(np.arange(10, 20), np.array([0, 3, 3, 5, 10]), pad=-1)


def test_select_rows_masks_belong_to_the_selected_sequences() -> None:
    samples = {"ids": IDS, "age": ArraySamples(np.arange(4)), "mask": MaskSamples(IDS)}
    selected = select_rows(samples, np.array([2, 0, 1]))
    ids = selected["ids"]
    assert isinstance(ids, RaggedSamples)
    assert (ids.values.tolist(), ids.offsets.tolist()) == ([13, 14, 10, 11, 12], [0, 2, 5, 5])
    rows = np.arange(3)
    assert ids.take(rows).tolist() == [[13, 14, -1], [10, 11, 12], [-1, -1, -1]]
    expected_mask = [[True, True, False], [True] * 3, [False] * 3]
    assert selected["mask"].take(rows).tolist() == expected_mask
    assert selected["age"].take(rows).tolist() == [2, 0, 1]


def test_select_keeps_the_fixed_width() -> None:
    selected = replace(IDS, width=6, pad=7).select(np.array([2]))
    assert selected.take(np.array([0])).tolist() == [[13, 14, 7, 7, 7, 7]]


def test_select_keeps_the_type_of_padded_sequences() -> None:
    narrow = RaggedSamples(np.arange(5, dtype=np.uint8), np.array([0, 2, 5]))
    selected = replace(narrow, pad=-100, padded_dtype=np.dtype(np.int64)).select(np.array([1, 0]))
    assert selected.take(np.arange(2)).tolist() == [[2, 3, 4], [0, 1, -100]]


def test_mask_of_padding_is_true_at_padding() -> None:
    mask = select_rows({"mask": MaskSamples(IDS, marks_padding=True)}, np.array([2, 0]))["mask"]
    assert mask.take(np.arange(2)).tolist() == [[False, False, True], [False] * 3]


def test_find_sample_skips_empty_sequences() -> None:
    assert [IDS.find_sample(place) for place in (0, 2, 3, 9)] == [0, 0, 2, 3]


@pytest.mark.parametrize(
    ("kind", "pad", "expected"),
    [
        ("uint8", 255, True),
        ("uint8", 256, False),
        ("uint16", -1, False),
        ("int32", -1, True),
        ("int64", 0.5, False),
        ("float32", 0.5, True),
        ("float32", np.inf, False),
        ("bool", 1, True),
        ("bool", 2, False),
    ],
)
def test_can_hold_follows_type_and_value(kind: str, pad: float, expected: bool) -> None:
    assert can_hold(np.dtype(kind), pad) == expected


@pytest.mark.parametrize(
    "offsets",
    [
        np.array([0.0, 8.0]),
        np.array([[0, 8]]),
        np.array([8]),
        np.array([1, 8]),
        np.array([0, 7]),
        np.array([0, 5, 4, 8]),
    ],
    ids=str,
)
def test_check_offsets_that_do_not_divide_the_values_raise(offsets: np.ndarray) -> None:
    with pytest.raises(InputError) as caught:
        check_offsets(np.arange(8), offsets, "x_offsets")
    assert "x_offsets" in caught.value.message
    assert check_offsets(np.arange(8), np.uint8([0, 8, 8]), "x_offsets").dtype == np.int64
