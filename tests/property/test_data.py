"""What holds for any data: batches cover it in order, a division loses nothing, preparing is the plain formula."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ltp_pipeline.data.dataset import TARGET
from ltp_pipeline.data.prefetch import iter_batches
from ltp_pipeline.data.preprocessing import decide_preparation
from ltp_pipeline.data.splitting import divide_rows, split_off_rows
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings
from tests.support.samples import only, split_of

some_labels = hnp.arrays(np.int64, st.integers(2, 200), elements=st.integers(0, 9))
seeds = st.integers(0, 2**32)
shares = st.floats(0.01, 0.99)


@given(
    count=st.integers(0, 60),
    batch_size=st.integers(1, 70),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
)
def test_batches_cover_each_sample_once_and_in_order(
    count: int, batch_size: int, drop_last: bool, shuffle: bool
) -> None:
    x = np.arange(count, dtype=np.float32)
    split = split_of(x, 3 * np.arange(count))
    order = np.random.default_rng(count).permutation(count) if shuffle else None
    got = list(iter_batches(split, batch_size, order, drop_last))
    assert all(len(batch) == len(batch.targets[TARGET]) == batch_size for batch in got[:-1])
    seen = [int(v) for batch in got for v in only(batch)]
    expected = (np.arange(count) if order is None else order).tolist()
    assert seen == expected[: count - count % batch_size if drop_last else count]
    assert [int(v) for batch in got for v in batch.targets[TARGET]] == [3 * v for v in seen]


@given(labels=some_labels, share=shares, seed=seeds)
def test_a_division_is_disjoint_complete_and_repeatable(
    labels: np.ndarray, share: float, seed: int
) -> None:
    kept, taken = split_off_rows(labels, share, seed)
    assert sorted([*kept, *taken]) == list(range(len(labels)))
    assert len(taken) == min(max(round(len(labels) * share), 1), len(labels) - 1)
    for first, again in zip((kept, taken), split_off_rows(labels, share, seed), strict=True):
        np.testing.assert_array_equal(first, again)


@given(labels=some_labels, share=shares, seed=seeds)
def test_each_side_sees_every_class_where_there_is_room(
    labels: np.ndarray, share: float, seed: int
) -> None:
    kept, taken = split_off_rows(labels, share, seed)
    values, counts = np.unique(labels, return_counts=True)
    if len(kept) >= len(values):
        assert set(labels[kept]) == set(values)
    if len(taken) >= (counts > 1).sum():
        assert set(labels[taken]) >= set(values[counts > 1])


@given(
    labels=hnp.arrays(np.int64, st.integers(3, 200), elements=st.integers(0, 9)),
    share=shares,
    seed=seeds,
)
def test_three_splits_of_one_set_are_disjoint_and_complete(
    labels: np.ndarray, share: float, seed: int
) -> None:
    rows, notes = divide_rows({"all": labels}, share, seed)
    assert set(rows) == {"train", "val", "test"}
    assert all(source == "all" and len(chosen) for source, chosen in rows.values())
    assert sorted(np.concatenate([chosen for _, chosen in rows.values()])) == list(
        range(len(labels))
    )
    assert len(notes) == 2


stored_arrays = hnp.arrays(
    st.sampled_from([np.uint8, np.int16, np.float32, np.float64]),
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5)),
    elements=st.integers(0, 127),
)
finite = st.floats(-100, 100, width=32)


@given(x=stored_arrays, scale=st.none() | finite, nhwc=st.booleans(), values=st.data())
def test_preparing_is_the_plain_formula(
    x: np.ndarray, scale: float | None, nhwc: bool, values: st.DataObject
) -> None:
    channels = x.shape[3] if nhwc else x.shape[1]
    sizes = st.sampled_from([0, 1, channels])
    mean = values.draw(sizes.flatmap(lambda n: st.lists(finite, min_size=n, max_size=n)))
    std = values.draw(
        sizes.flatmap(lambda n: st.lists(st.floats(0.125, 8, width=32), min_size=n, max_size=n))
    )
    settings = DataSettings(
        scale=scale, mean=tuple(mean), std=tuple(std), layout="NHWC" if nhwc else "NCHW"
    )
    model = TensorInfo("x", "FLOAT", ("N", "C", "H", "W"))
    before = x.copy()
    got = decide_preparation("x", x.shape[1:], settings.layout, settings, model)(x.copy())
    expected = (x.transpose(0, 3, 1, 2) if nhwc else x).astype(np.float32)
    expected = expected * np.float32(1 if scale is None else scale)
    expected = (expected - np.float32(mean or [0]).reshape(-1, 1, 1)) / np.float32(
        std or [1]
    ).reshape(-1, 1, 1)
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == np.float32
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(x, before)
