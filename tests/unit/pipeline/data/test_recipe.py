"""How samples are stored and prepared: what a report keeps of it, and samples that could have been stored so."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.data import recipe
from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.data.open import open_data
from ltp_pipeline.data.preprocessing import Preparation
from ltp_pipeline.data.recipe import Recipe
from ltp_pipeline.data.sequences import MaskSamples, RaggedSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings
from tests.support.archives import sequences

TOKENS = [TensorInfo("ids", "INT64", ("N", "T")), TensorInfo("ids_mask", "INT64", ("N", "T"))]


@pytest.fixture
def data(tmp_path: Path) -> DatasetSplits:
    """Sequences of 2 to 6 tokens from 3 to 9, in three splits."""
    np.savez(tmp_path / "data.npz", **sequences("ids"))
    return open_data(DataSettings(path=tmp_path / "data.npz", padding_value=5), TOKENS, 0)


def kept(recipes: dict[str, Recipe]) -> dict[str, Any]:
    """As a report has them."""
    return json.loads(
        json.dumps(
            {"inputs": {name: {"preprocessing": found.plain()} for name, found in recipes.items()}}
        )
    )


def test_a_report_keeps_the_lengths_of_sequences_and_what_a_mask_is_of(data: DatasetSplits):
    found = recipe.load_recipes(kept(recipe.describe_inputs(data)), ["ids", "ids_mask"])
    ids, mask = found["ids"], found["ids_mask"]
    assert (ids.low, ids.high, ids.lengths, ids.pad, ids.shape) == (3, 9, (2, 6), 5, (None,))
    assert (mask.mask_of, mask.lengths, mask.prepare.dtype) == ("ids", None, np.int64)


def test_generated_sequences_are_as_long_as_true_ones_and_their_mask_follows(data: DatasetSplits):
    samples = recipe.generate_samples(recipe.describe_inputs(data), 200, seed=0)
    ids, mask = samples["ids"], samples["ids_mask"]
    assert isinstance(ids, RaggedSamples)
    assert isinstance(mask, MaskSamples)
    lengths = np.diff(ids.offsets)
    assert set(lengths.tolist()) == {2, 3, 4, 5, 6}
    assert set(ids.values.tolist()) == {3, 4, 5, 6, 7, 8, 9}
    assert mask.take(np.arange(200)).sum(axis=1).tolist() == lengths.tolist()


def stored(
    *shape: int | None, dtype: str = "float32", low: float = 0, high: float = 1, **more: Any
) -> Recipe:
    return Recipe(np.dtype(dtype), shape, low, high, None, Preparation(np.dtype("float32")), **more)


def test_inputs_of_the_same_lengths_get_the_same_and_other_values():
    pair = {
        name: stored(None, dtype="int64", high=99, lengths=(1, 9), pad=0)
        for name in ("ids", "types")
    }
    samples = recipe.generate_samples(pair, 20, seed=0)
    ids, types = (samples[name] for name in ("ids", "types"))
    assert isinstance(ids, RaggedSamples)
    assert isinstance(types, RaggedSamples)
    assert np.array_equal(ids.offsets, types.offsets)
    assert not np.array_equal(ids.values, types.values)


def test_inputs_that_are_alike_get_other_values():
    samples = recipe.generate_samples({"left": stored(5), "right": stored(5)}, 3, seed=0)
    left, right = (samples[name].take(np.arange(3)) for name in ("left", "right"))
    assert not np.isin(left, right).any()


@given(
    st.sampled_from(["uint8", "int32", "int64", "float32", "float64"]),
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted),
    st.tuples(st.integers(0, 5), st.integers(0, 5)).map(sorted),
    st.lists(st.integers(1, 3), max_size=2),
)
def test_what_is_generated_is_of_the_type_range_and_lengths_of_true_samples(
    dtype: str, span: list[int], lengths: list[int], inner: list[int]
):
    low, high = span
    shortest, longest = lengths
    made = stored(
        None, *inner, dtype=dtype, low=low, high=high, lengths=(shortest, longest), pad=0
    ).generate(7, seed=3)
    assert isinstance(made, RaggedSamples)
    assert (made.values.dtype, made.values.shape[1:]) == (np.dtype(dtype), tuple(inner))
    assert ((low <= made.values) & (made.values <= high)).all()
    assert ((shortest <= np.diff(made.offsets)) & (np.diff(made.offsets) <= longest)).all()


@pytest.mark.parametrize(
    ("stored_shape", "steps", "shape"),
    [
        ((4, 5, 3), {"channels_to_front": True}, (3, 4, 5)),
        ((None,), {}, (None,)),
        ((None, 8), {}, (None, 8)),
        ((None, 8), {"add_channel": True}, (1, None, 8)),
        ((4, 5), {"add_channel": True, "flatten": True}, (20,)),
        ((), {}, ()),
    ],
)
def test_the_shape_that_the_model_takes_has_no_number_where_sequences_differ(
    stored_shape: tuple[int | None, ...], steps: dict[str, bool], shape: tuple[int | None, ...]
):
    prepare = Preparation(np.dtype("float32"), **steps)
    assert Recipe(np.dtype("uint8"), stored_shape, 0, 9, None, prepare).input_shape == shape


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("ids", {"stored": {"type": "int64", "shape": [None], "range": [0, 9], "lengths": [4, 2]}}),
        (
            "ids",
            {"stored": {"type": "int64", "shape": [None], "range": [0, 9], "lengths": [-1, 2]}},
        ),
        ("ids", {"stored": {"type": "int64", "shape": [5], "range": [0, 9], "lengths": [2, 6]}}),
        ("ids", {"stored": {"type": "int64", "shape": [None], "range": [0, 9], "lengths": None}}),
        (
            "ids",
            {
                "stored": {
                    "type": "int64",
                    "shape": [None, None],
                    "range": [0, 9],
                    "lengths": [2, 6],
                }
            },
        ),
        ("ids", {"pad": 0.5}),
        ("ids_mask", {"mask_of": "nothing"}),
        ("ids_mask", {"mask_of": "ids_mask"}),
    ],
    ids=str,
)
def test_sequences_that_cannot_be_are_refused(
    data: DatasetSplits, name: str, change: dict[str, Any]
):
    report = kept(recipe.describe_inputs(data))
    report["inputs"][name]["preprocessing"] |= change
    with pytest.raises(InputError, match="how samples are stored"):
        recipe.load_recipes(report, ["ids", "ids_mask"])


def test_an_input_of_which_the_report_says_nothing_is_refused(data: DatasetSplits):
    with pytest.raises(InputError, match="how samples are stored"):
        recipe.load_recipes(kept(recipe.describe_inputs(data)), ["ids", "ids_mask", "third"])
