"""Descriptions of stored samples in a report, and random samples that could have been stored."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.data.generated import (
    describe_inputs,
    describe_masks,
    generate_samples,
    load_recipes,
)
from ltp_pipeline.data.open import open_data
from ltp_pipeline.data.sequences import MaskSamples, RaggedSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.results.schema_parts import DataInfo, InputInfo, InputRecipe, StoredSamples
from ltp_pipeline.settings.schema import DataSettings
from tests.support.archives import make_sequences

TOKENS = [TensorInfo("ids", "INT64", ("N", "T")), TensorInfo("ids_mask", "INT64", ("N", "T"))]


@pytest.fixture
def data(tmp_path: Path) -> DatasetSplits:
    """Sequences of 2 to 6 tokens from 3 to 9, in three splits."""
    np.savez(tmp_path / "data.npz", **make_sequences("ids"))
    return open_data(DataSettings(path=tmp_path / "data.npz", padding_value=5), TOKENS, 0)


def report_of(recipes: dict[str, InputRecipe]) -> DataInfo:
    """The recipes as a report on disk has them."""
    inputs = {name: InputInfo(preprocessing=recipe) for name, recipe in recipes.items()}
    return DataInfo.model_validate_json(DataInfo(inputs=inputs).model_dump_json())


def stored_recipe(
    *shape: int | None, dtype: str = "float32", low: float = 0, high: float = 1, **stored: Any
) -> InputRecipe:
    samples = StoredSamples(type=dtype, shape=shape, range=(low, high), **stored)
    return InputRecipe(stored=samples, pad=0.0)


def test_describe_inputs_round_trips_through_a_report(data: DatasetSplits):
    recipes = load_recipes(report_of(describe_inputs(data)), ["ids", "ids_mask"])
    assert recipes == describe_inputs(data)
    stored = recipes["ids"].stored
    assert stored == StoredSamples(type="uint8", shape=(None,), lengths=(2, 6), range=(3, 9))
    assert recipes["ids"].pad == 5
    assert (recipes["ids_mask"].mask_of, recipes["ids_mask"].type) == ("ids", "int64")


def test_describe_inputs_covers_the_values_of_all_splits(tmp_path: Path):
    parts = {"x_train": [[1.5]] * 4, "x_val": [[-2.0]], "x_test": [[7.0]]}
    np.savez(tmp_path / "data.npz", **{name: np.float32(x) for name, x in parts.items()})
    settings = DataSettings(path=tmp_path / "data.npz")
    recipes = describe_inputs(open_data(settings, [TensorInfo("x", "FLOAT", ("N", 1))], 0))
    assert recipes["x"].stored == StoredSamples(type="float32", shape=(1,), range=(-2.0, 7.0))


def test_describe_masks_names_each_mask(data: DatasetSplits):
    (sentence,) = describe_masks(data)
    assert "'ids_mask'" in sentence


def test_generate_samples_sequences_have_lengths_and_values_of_stored_ones(data: DatasetSplits):
    samples = generate_samples(describe_inputs(data), 200, seed=0)
    ids, mask = samples["ids"], samples["ids_mask"]
    assert isinstance(ids, RaggedSamples)
    assert isinstance(mask, MaskSamples)
    lengths = np.diff(ids.offsets)
    assert set(lengths.tolist()) == {2, 3, 4, 5, 6}
    assert set(ids.values.tolist()) == {3, 4, 5, 6, 7, 8, 9}
    assert mask.take(np.arange(200)).sum(axis=1).tolist() == lengths.tolist()


def test_generate_samples_inputs_with_equal_limits_have_equal_lengths():
    recipe = stored_recipe(None, dtype="int64", high=99, lengths=(1, 9))
    samples = generate_samples({"ids": recipe, "types": recipe}, 20, seed=0)
    ids, types = samples["ids"], samples["types"]
    assert isinstance(ids, RaggedSamples)
    assert isinstance(types, RaggedSamples)
    assert np.array_equal(ids.offsets, types.offsets)
    assert not np.array_equal(ids.values, types.values)


def test_generate_samples_equal_recipes_have_different_values():
    samples = generate_samples({"left": stored_recipe(5), "right": stored_recipe(5)}, 3, seed=0)
    left, right = (samples[name].take(np.arange(3)) for name in ("left", "right"))
    assert not np.isin(left, right).any()


@given(
    st.sampled_from(["uint8", "int32", "int64", "float32", "float64"]),
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted),
    st.tuples(st.integers(0, 5), st.integers(0, 5)).map(sorted),
    st.lists(st.integers(1, 3), max_size=2),
)
def test_generate_samples_type_range_and_lengths_are_those_of_the_recipe(
    dtype: str, span: list[int], lengths: list[int], inner: list[int]
):
    low, high = span
    shortest, longest = lengths
    recipe = stored_recipe(
        None, *inner, dtype=dtype, low=low, high=high, lengths=(shortest, longest)
    )
    generated = generate_samples({"x": recipe}, 7, seed=3)["x"]
    assert isinstance(generated, RaggedSamples)
    assert (generated.values.dtype, generated.values.shape[1:]) == (np.dtype(dtype), tuple(inner))
    assert ((low <= generated.values) & (generated.values <= high)).all()
    sizes = np.diff(generated.offsets)
    assert ((shortest <= sizes) & (sizes <= longest)).all()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("ids", {"shape": (None,), "lengths": (4, 2)}),
        ("ids", {"shape": (5,), "lengths": (2, 6)}),
        ("ids", {"shape": (None,), "lengths": None}),
        ("ids", {"shape": (None, None), "lengths": (2, 6)}),
        ("ids", {"shape": (), "lengths": (2, 6)}),
        ("ids", {"range": None}),
        ("ids", {"pad": 0.5}),
        ("ids_mask", {"mask_of": "nothing"}),
        ("ids_mask", {"mask_of": "ids_mask"}),
    ],
    ids=str,
)
def test_load_recipes_impossible_samples_raise(
    data: DatasetSplits, name: str, change: dict[str, Any]
):
    recipes = describe_inputs(data)
    recipe = recipes[name]
    stored = {key: value for key, value in change.items() if key in StoredSamples.model_fields}
    assert recipe.stored is not None
    others = {key: value for key, value in change.items() if key not in stored}
    update = {"stored": recipe.stored.model_copy(update=stored), **others}
    report = report_of({**recipes, name: recipe.model_copy(update=update)})
    with pytest.raises(InputError) as caught:
        load_recipes(report, ["ids", "ids_mask"])
    assert "report" in caught.value.message


@pytest.mark.parametrize("dtype", ["object", "U5", "float32,float32", "datetime64"])
def test_report_unknown_number_type_raises(dtype: str):
    with pytest.raises(ValueError, match="pattern"):
        InputRecipe(type=dtype)


def test_load_recipes_input_without_recipe_raises(data: DatasetSplits):
    report = report_of(describe_inputs(data))
    with pytest.raises(InputError):
        load_recipes(report, ["ids", "ids_mask", "third"])
    report.inputs["third"] = InputInfo()
    with pytest.raises(InputError):
        load_recipes(report, ["third"])
