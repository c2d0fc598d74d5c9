"""Which column goes to which input, and what masks are made of."""

import numpy as np
import pytest

from ltp_pipeline.data.dataset import ArraySamples, DataColumn, Part
from ltp_pipeline.data.matching import match_columns
from ltp_pipeline.data.sequences import RaggedSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import TaskSettings

RAGGED = DataColumn(RaggedSamples(np.ones(6, np.int64), np.array([0, 1, 3, 6])), "here")
DENSE = DataColumn(ArraySamples(np.ones((3, 4), np.int64)), "here")


def tokens(name: str, width: str | None = "S") -> TensorInfo:
    return TensorInfo(name, "INT64", ("N", width))


@pytest.mark.parametrize(
    "names", [("attention_mask", "input_ids"), ("input_ids", "attention_mask")]
)
def test_the_short_form_goes_to_the_input_that_is_no_mask(names: tuple[str, ...]):
    found = match_columns({"x": RAGGED}, [tokens(name) for name in names], TaskSettings())
    assert (found.inputs, found.masks) == ({"input_ids": "x"}, {"attention_mask": "x"})


def test_the_short_form_goes_to_a_mask_where_there_is_nothing_else():
    assert match_columns({"x": DENSE}, [tokens("mask")], TaskSettings()).inputs == {"mask": "x"}


def test_a_mask_of_which_nothing_tells_where_it_is_one_has_no_data():
    with pytest.raises(InputError, match="input 'attention_mask' has no data"):
        match_columns({"x": DENSE}, [tokens("attention_mask"), tokens("input_ids")], TaskSettings())


def test_a_mask_is_of_the_input_that_shares_its_dimension():
    part: Part = {"source": RAGGED, "target_ids": RAGGED}
    inputs = [
        tokens("source", "S"),
        tokens("target_ids", "T"),
        tokens("mask_t", "T"),
        tokens("target_mask", "S"),
    ]
    assert match_columns(part, inputs, TaskSettings()).masks == {
        "mask_t": "target_ids",
        "target_mask": "source",
    }


def test_a_mask_without_named_dimensions_is_of_the_input_whose_name_begins_like_its_own():
    part: Part = {"source": RAGGED, "target_ids": RAGGED}
    inputs = [tokens(name, None) for name in ("source", "target_ids", "target_mask", "source_mask")]
    assert match_columns(part, inputs, TaskSettings()).masks == {
        "target_mask": "target_ids",
        "source_mask": "source",
    }


def test_labels_beside_those_that_are_named_are_left_aside():
    part: Part = {"x": DENSE, "shape": DENSE, "colour": DENSE}
    found = match_columns(part, [tokens("ids")], TaskSettings(target="colour"))
    assert (found.target, found.unused) == ("colour", ("shape",))
