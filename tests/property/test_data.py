"""Properties of any data: batches in order, disjoint splits, and the formula of preprocessing."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from ltp_pipeline.data.dataset import TARGET
from ltp_pipeline.data.loader import iter_batches
from ltp_pipeline.data.preprocessing import compute_input_shape, prepare_samples
from ltp_pipeline.data.splitting import divide_rows, split_off_rows
from ltp_pipeline.results.schema_parts import InputRecipe
from tests.support.samples import only_input, split_of

some_labels = hnp.arrays(np.int64, st.integers(2, 200), elements=st.integers(0, 9))
seeds = st.integers(0, 2**32)
shares = st.floats(0.01, 0.99)


@given(
    count=st.integers(0, 60),
    batch_size=st.integers(1, 70),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
)
def test_iter_batches_cover_each_sample_once_and_in_order(
    count: int, batch_size: int, drop_last: bool, shuffle: bool
) -> None:
    x = np.arange(count, dtype=np.float32)
    split = split_of(x, 3 * np.arange(count))
    order = np.random.default_rng(count).permutation(count) if shuffle else None
    got = list(iter_batches(split, batch_size, order, drop_last))
    assert all(len(batch) == len(batch.targets[TARGET]) == batch_size for batch in got[:-1])
    seen = [int(v) for batch in got for v in only_input(batch)]
    expected = (np.arange(count) if order is None else order).tolist()
    assert seen == expected[: count - count % batch_size if drop_last else count]
    assert [int(v) for batch in got for v in batch.targets[TARGET]] == [3 * v for v in seen]


@given(labels=some_labels, share=shares, seed=seeds)
def test_split_off_rows_are_disjoint_complete_and_repeatable(
    labels: np.ndarray, share: float, seed: int
) -> None:
    remaining_rows, split_rows = split_off_rows(labels, share, seed)
    assert sorted([*remaining_rows, *split_rows]) == list(range(len(labels)))
    assert len(split_rows) == min(max(round(len(labels) * share), 1), len(labels) - 1)
    for first, again in zip(
        (remaining_rows, split_rows), split_off_rows(labels, share, seed), strict=True
    ):
        np.testing.assert_array_equal(first, again)


@given(labels=some_labels, share=shares, seed=seeds)
def test_split_off_rows_each_side_has_every_class_if_possible(
    labels: np.ndarray, share: float, seed: int
) -> None:
    remaining_rows, split_rows = split_off_rows(labels, share, seed)
    values, counts = np.unique(labels, return_counts=True)
    if len(remaining_rows) >= len(values):
        assert set(labels[remaining_rows]) == set(values)
    if len(split_rows) >= (counts > 1).sum():
        assert set(labels[split_rows]) >= set(values[counts > 1])


@given(
    labels=hnp.arrays(np.int64, st.integers(3, 200), elements=st.integers(0, 9)),
    share=shares,
    seed=seeds,
)
def test_divide_rows_three_splits_are_disjoint_and_complete(
    labels: np.ndarray, share: float, seed: int
) -> None:
    rows, notes = divide_rows({"all": labels}, share, seed)
    assert set(rows) == {"train", "val", "test"}
    assert all(source == "all" and len(chosen) for source, chosen in rows.values())
    assert sorted(np.concatenate([chosen for _, chosen in rows.values()])) == list(
        range(len(labels))
    )
    assert len(notes) == 2


floats = st.floats(-100, 100, width=32)


@st.composite
def preprocessing_cases(draw: st.DrawFn) -> tuple[InputRecipe, np.ndarray]:
    """A recipe with any steps that fit together, and stored samples for it."""
    count, height, width, channels = (draw(st.integers(1, 4)) for _ in range(4))
    has_channels = draw(st.booleans())
    to_front = has_channels and draw(st.booleans())
    if not has_channels:
        shape, channels = (count, height, width), 1
    elif to_front:
        shape = (count, height, width, channels)
    else:
        shape = (count, channels, height, width)
    dtype = draw(st.sampled_from(["uint8", "int16", "float32", "float64", "bool", ">f4"]))
    kind = draw(st.sampled_from(["float32", "float64", "uint8", "int64"]))
    elements = st.integers(0, 1 if dtype == "bool" else 127)
    x = draw(hnp.arrays(np.dtype(dtype), shape, elements=elements))
    steps: dict[str, Any] = {
        "type": kind,
        "add_channel": not has_channels,
        "channels_to_front": to_front,
        "resize": draw(st.none() | st.tuples(st.integers(1, 5), st.integers(1, 5))),
        "channels_to_back": draw(st.booleans()),
        "flatten": draw(st.booleans()),
    }
    if kind.startswith("float"):
        sizes = st.sampled_from([1, channels])
        steps["scale"] = draw(st.none() | floats)
        for name, values in (("mean", floats), ("std", st.floats(0.125, 8, width=32))):
            lists = sizes.flatmap(lambda n, values=values: st.lists(values, min_size=n, max_size=n))
            steps[name] = draw(st.none() | lists.map(tuple))
    return InputRecipe(**steps), x


@given(preprocessing_cases())
def test_prepare_samples_is_the_plain_formula(case: tuple[InputRecipe, np.ndarray]) -> None:
    recipe, x = case
    prepared = prepare_samples(recipe, x.copy())
    expected = x[:, None] if recipe.add_channel else x
    if recipe.channels_to_front:
        expected = expected.transpose(0, 3, 1, 2)
    if recipe.resize is not None and expected.shape[2:] != recipe.resize:
        mode = np.uint8 if x.dtype == np.uint8 else np.float32
        size = recipe.resize[::-1]
        expected = np.array(
            [
                [
                    Image.fromarray(p.astype(mode)).resize(size, Image.Resampling.BILINEAR)
                    for p in planes
                ]
                for planes in expected
            ]
        )
    dtype = np.dtype(recipe.type)
    if recipe.resize is not None and dtype.kind != "f":
        expected = np.rint(expected)
    expected = expected.astype(dtype)
    if recipe.scale is not None:
        expected = expected * dtype.type(recipe.scale)
    if recipe.mean is not None:
        expected = expected - np.array(recipe.mean, dtype).reshape(-1, 1, 1)
    if recipe.std is not None:
        expected = expected / np.array(recipe.std, dtype).reshape(-1, 1, 1)
    if recipe.channels_to_back:
        expected = expected.transpose(0, 2, 3, 1)
    if recipe.flatten:
        expected = expected.reshape(len(expected), -1)
    np.testing.assert_array_equal(prepared, expected)
    assert prepared.dtype == dtype
    assert prepared.flags.c_contiguous
    assert compute_input_shape(recipe, x.shape[1:]) == prepared.shape[1:]
