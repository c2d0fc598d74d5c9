"""Ranges of activations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.exporters.int8 import ranges
from ltp_pipeline.exporters.int8.ranges import RANGE_METHODS, HistogramObserver, observe_values
from ltp_pipeline.graph.model import OnnxModel
from tests.support.models import mlp, run_onnxruntime


def seen(*batches: np.ndarray) -> HistogramObserver:
    result = HistogramObserver()
    for batch in batches:
        result.add_batch(batch.astype(np.float32))
    return result


@given(
    st.lists(
        st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20), min_size=1, max_size=5
    )
)
def test_range_of_every_method_lies_within_values(batches: list[list[float]]) -> None:
    result = seen(*(np.array(batch) for batch in batches))
    whole = ranges.find_min_max_range(result)
    assert whole == (min(0.0, *map(min, batches)), max(0.0, *map(max, batches)))
    for method in RANGE_METHODS.values():
        low, high = method(result)
        assert whole.low <= low <= 0 <= high <= whole.high


def test_add_batch_with_larger_values_keeps_counts() -> None:
    small, large = np.linspace(0.1, 1, 100), np.linspace(1, 37, 50)
    result = seen(small, large)
    assert result.limit >= 37
    assert result.counts.sum() == 150
    expected = np.histogram(
        np.concatenate([small, large]), result.counts.shape[1], (0, result.limit)
    )[0]
    assert np.abs(np.cumsum(result.counts[1]) - np.cumsum(expected)).max() <= 1


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_range_excludes_single_outlier(method: str) -> None:
    values = np.random.default_rng(0).standard_normal(2**16)
    low, high = RANGE_METHODS[method](seen(values, np.array([500.0])))
    assert 2 < high < 100
    assert low < -2


def test_entropy_range_ignores_zeros() -> None:
    """Half of what a ReLU gives is zero, which 8 bits hold exactly."""
    values = np.maximum(np.random.default_rng(0).standard_normal(2**14), 0)
    assert ranges.find_entropy_range(seen(values)).high > 2.5


def test_add_batch_with_infinite_values_is_not_finite() -> None:
    assert seen(np.array([1.0])).is_finite
    assert not seen(np.array([1.0]), np.array([np.inf])).is_finite
    assert not seen(np.array([np.nan])).is_finite


def test_observe_values_records_values_of_model() -> None:
    model = mlp()
    x = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
    result = observe_values(
        OnnxModel.from_proto(model), ["x", "logits", "relu_1_out"], [{"x": x[:4]}, {"x": x[4:]}]
    )
    logits = run_onnxruntime(model, {"x": x})[0]
    assert result["logits"].high == pytest.approx(max(logits.max(), 0), rel=1e-5)
    assert result["x"].low == pytest.approx(x.min())
    assert result["relu_1_out"].low == 0
