"""Sequences of uneven length: some of them without the others, and what they can be filled up with."""

import numpy as np
import pytest

from ltp_pipeline.data.dataset import ArraySamples
from ltp_pipeline.data.sequences import MaskSamples, RaggedSamples, can_hold, select_rows

IDS = RaggedSamples(np.arange(10, 20), np.array([0, 3, 3, 5, 10]), pad=-1)


def test_rows_of_sequences_stand_alone_with_their_mask():
    samples = {"ids": IDS, "age": ArraySamples(np.arange(4)), "mask": MaskSamples(IDS)}
    found = select_rows(samples, np.array([2, 0, 1]))
    ids = found["ids"]
    assert isinstance(ids, RaggedSamples)
    assert (ids.values.tolist(), ids.offsets.tolist()) == ([13, 14, 10, 11, 12], [0, 2, 5, 5])
    assert ids.take(np.arange(3)).tolist() == [[13, 14, -1], [10, 11, 12], [-1, -1, -1]]
    assert found["mask"].take(np.arange(3)).tolist() == [
        [True, True, False],
        [True] * 3,
        [False] * 3,
    ]
    assert found["age"].take(np.arange(3)).tolist() == [2, 0, 1]


def test_rows_keep_the_width_that_the_model_fixes():
    found = IDS.with_padding(6, 7).select(np.array([2]))
    assert found.take(np.array([0])).tolist() == [[13, 14, 7, 7, 7, 7]]


def test_rows_keep_the_type_that_they_are_read_as():
    bytes_ = RaggedSamples(np.arange(5, dtype=np.uint8), np.array([0, 2, 5]))
    found = bytes_.with_padding(None, -100, np.dtype(np.int64)).select(np.array([1, 0]))
    assert found.take(np.arange(2)).tolist() == [[2, 3, 4], [0, 1, -100]]


@pytest.mark.parametrize(
    ("kind", "pad", "can"),
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
def test_a_type_holds_what_its_sequences_are_filled_up_with(kind: str, pad: float, can: bool):
    assert can_hold(np.dtype(kind), pad) == can


def test_a_mask_of_padding_is_one_where_there_is_no_value():
    mask = select_rows({"mask": MaskSamples(IDS, marks_padding=True)}, np.array([2, 0]))["mask"]
    assert mask.take(np.arange(2)).tolist() == [[False, False, True], [False] * 3]
