"""Columns are matched to inputs, to masks and to the target."""

import numpy as np
import pytest

from ltp_pipeline.data.dataset import ArraySamples, DataColumn, NonNumericColumn, Part
from ltp_pipeline.data.matching import UnusedColumnError, match_columns
from ltp_pipeline.data.sequences import RaggedSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import TaskSettings

RAGGED = DataColumn(RaggedSamples(np.ones(6, np.int64), np.array([0, 1, 3, 6])), "here")
DENSE = DataColumn(ArraySamples(np.ones((3, 4), np.int64)), "here")
TEXT = DataColumn(NonNumericColumn(3, "string"), "column 'text'")


def tokens(name: str, width: str | None = "S") -> TensorInfo:
    return TensorInfo(name, "INT64", ("N", width))


def match_error(part: Part, inputs: list[TensorInfo], **task: str) -> InputError:
    with pytest.raises(InputError) as caught:
        match_columns(part, inputs, TaskSettings.model_validate(task))
    return caught.value


@pytest.mark.parametrize(
    "names", [("attention_mask", "input_ids"), ("input_ids", "attention_mask")]
)
def test_match_columns_x_feeds_the_input_that_is_no_mask(names: tuple[str, ...]) -> None:
    match = match_columns({"x": RAGGED}, [tokens(name) for name in names], TaskSettings())
    assert (match.inputs, match.masks) == (
        {"input_ids": "x"},
        {"attention_mask": "input_ids"},
    )


def test_match_columns_x_feeds_a_mask_that_is_the_only_input() -> None:
    assert match_columns({"x": DENSE}, [tokens("mask")], TaskSettings()).inputs == {"mask": "x"}


def test_match_columns_mask_without_sequences_has_no_column() -> None:
    error = match_error({"x": DENSE}, [tokens("attention_mask"), tokens("input_ids")])
    assert "'attention_mask'" in error.message
    assert "attention_mask_train" in error.hint


def test_match_columns_mask_belongs_to_the_input_that_shares_its_dimension() -> None:
    part: Part = {"source": RAGGED, "target_ids": RAGGED}
    dims = {"source": "S", "target_ids": "T", "mask_t": "T", "target_mask": "S"}
    inputs = [tokens(name, dim) for name, dim in dims.items()]
    masks = match_columns(part, inputs, TaskSettings()).masks
    assert masks == {"mask_t": "target_ids", "target_mask": "source"}


def test_match_columns_mask_without_dimension_belongs_to_the_most_similar_name() -> None:
    part: Part = {"source": RAGGED, "target_ids": RAGGED}
    inputs = [tokens(name, None) for name in ("source", "target_ids", "target_mask", "source_mask")]
    masks = match_columns(part, inputs, TaskSettings()).masks
    assert masks == {"target_mask": "target_ids", "source_mask": "source"}


def test_match_columns_target_setting_leaves_other_columns_unused() -> None:
    part: Part = {"x": DENSE, "shape": DENSE, "color": DENSE}
    match = match_columns(part, [tokens("ids")], TaskSettings(target="color"))
    assert (match.target, match.unused) == ("color", ("shape",))


def test_match_columns_unused_column_may_be_the_target() -> None:
    error = match_error({"x": DENSE, "color": DENSE}, [tokens("ids")])
    assert isinstance(error, UnusedColumnError)
    assert error.names == ("color",)
    assert 'target = "color"' in error.hint
    labeled = match_error({"x": DENSE, "y": DENSE, "color": DENSE}, [tokens("ids")])
    assert isinstance(labeled, UnusedColumnError)
    assert labeled.names == ()


def test_match_columns_several_targets_raise() -> None:
    error = match_error({"x": DENSE, "y": DENSE, "labels": DENSE}, [tokens("ids")])
    assert "'y', 'labels'" in error.message
    assert "target" in error.hint


def test_match_columns_unknown_target_raises() -> None:
    assert "'color'" in match_error({"x": DENSE}, [tokens("ids")], target="color").message


def test_match_columns_text_raises_unless_distillation_needs_no_target() -> None:
    part: Part = {"x": DENSE, "y": TEXT}
    assert "string" in match_error(part, [tokens("ids")]).message
    assert (
        match_columns(part, [tokens("ids")], TaskSettings(kind="distillation"), True).target is None
    )
    error = match_error({"ids": TEXT}, [tokens("ids")])
    assert "'ids'" in error.message
