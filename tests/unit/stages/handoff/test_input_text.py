"""What each input of the model is made of, in words."""

from typing import Any

import pytest

from ltp_pipeline.results.schema_parts import InputInfo
from ltp_pipeline.stages.handoff import input_text as inputs


def part(**recipe: Any) -> InputInfo:
    return InputInfo.model_validate(
        {"preprocessing_steps": ["flatten"], "preprocessing": recipe}, strict=False
    )


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (
            {"stored": {"type": "uint8", "shape": (4, 5), "range": (0, 255)}},
            "<uint8> of shape <4 × 5>, values from 0 to 255",
        ),
        (
            {"stored": {"type": "bool", "shape": (), "range": (0, 1)}},
            "<bool> of shape <scalar>, values False or True",
        ),
        (
            {"stored": {"type": "float32", "shape": (2,), "range": (-0.123456789, 1)}},
            "<float32> of shape <2>, values from -0.123457 to 1",
        ),
        (
            {"stored": {"type": "int64", "shape": (None, 3), "lengths": (1, 7), "range": (0, 9)}},
            "sequences of 1 to 7 <int64>, each of shape <3>, values from 0 to 9",
        ),
        (
            {"stored": {"type": "bool", "shape": (None,)}, "mask_of": "ids"},
            "made, not stored: 1 where sequences of <ids> have values, 0 where they are filled up",
        ),
        ({}, None),
    ],
)
def test_stored_samples_are_told(recipe: dict[str, Any], said: str | None):
    assert inputs.stored(part(**recipe), lambda name: f"<{name}>") == said


def test_scale_mean_and_std_are_the_last_steps_and_a_formula():
    made = part(scale=0.5, mean=(1.0, 2.0), std=(3.0,))
    assert inputs.steps(made) == [
        "flatten",
        "multiply by 0.5",
        "subtract the mean 1, 2, one per channel",
        "divide by the standard deviation 3",
    ]
    assert inputs.formula(made.preprocessing) == "(x * 0.5 - [1.0, 2.0]) / [3.0]"


def test_an_input_of_which_nothing_is_known_is_told_as_such():
    assert (inputs.stored(InputInfo()), inputs.steps(InputInfo()), inputs.formula(None)) == (
        None,
        None,
        "x",
    )
