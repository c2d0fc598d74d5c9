"""Times of fast files with other zeros, and the time of a nonzero that follows from them."""

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

from ltp_pipeline.exporters.sparse_ops import fast_timing
from ltp_pipeline.exporters.sparse_ops.fast_timing import (
    FastFileTimer,
    FastTiming,
    fit_weight_times,
)
from ltp_pipeline.graph.model import OnnxModel
from tests.support.models import Graph, random_inputs
from tests.support.quantized import kernels_of

ELEMENTS = {"wide": 1000, "narrow": 100}


def test_weight_times_are_the_slopes_of_layer_times_in_picoseconds() -> None:
    points = [
        (
            {"wide": n, "narrow": n // 10},
            FastTiming(n / 1000, {"wide": 0.1 + 2e-5 * n, "narrow": 0.01 + 7e-5 * (n // 10)}),
        )
        for n in (10, 100, 500, 900)
    ]
    assert fit_weight_times(points, ELEMENTS, 0.5) == {"wide": 20_000, "narrow": 70_000}


@pytest.mark.parametrize(("target", "expected"), [(0.9, 1), (0.1, 5000)])
def test_layer_that_is_dense_near_the_target_costs_nothing(target: float, expected: int) -> None:
    points = [
        ({"wide": 900}, FastTiming(0.9, {})),
        ({"wide": 100}, FastTiming(0.2, {"wide": 1e-3 + 5e-7 * 1000})),
        ({"wide": 0}, FastTiming(0.1, {"wide": 1e-3})),
    ]
    assert fit_weight_times(points, {"wide": 1000}, target) == {"wide": expected}


def test_weight_time_is_not_zero_if_noise_hides_it() -> None:
    points = [({"wide": n}, FastTiming(0.5, {"wide": 0.003})) for n in (10, 400)]
    assert fit_weight_times(points, {"wide": 1000}, 0.5) == {"wide": round(0.1 * 3000)}


def test_unlisted_layers_are_left_out() -> None:
    points = [({"wide": 10, "new": 5}, FastTiming(0.5, {"wide": 0.1, "new": 0.1}))]
    assert fit_weight_times(points, {"wide": 1000}, 0.5).keys() == {"wide"}


def two_convs() -> ModelProto:
    """Two convolutions on 16×16 pixels and a Gemm of their mean."""
    g = Graph()
    x = g.add("Relu", g.conv("x", "first", 32, 32))
    x = g.add("GlobalAveragePool", g.add("Relu", g.conv(x, "second", 32, 32)))
    g.add("Identity", g.gemm(g.add("Flatten", x), "head", 32, 10), outputs=("y",))
    return g.model({"x": ("N", 32, 16, 16)}, ["y"])


def keep(model: OnnxModel, fraction: float) -> dict[str, np.ndarray]:
    """Return the weights of the convolutions with zeros outside of a random fraction."""
    rng = np.random.default_rng(0)
    names = ("first.weight", "second.weight")
    arrays = {name: model.get_array(name) for name in names}
    return {
        name: np.where(rng.random(array.shape) < fraction, array, 0)
        for name, array in arrays.items()
    }


def test_files_with_more_zeros_are_faster_layer_by_layer(
    kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_timing.library, "sparse_ops_library", lambda: kernels)
    proto = two_convs()
    model = OnnxModel.from_proto(proto)
    timer = FastFileTimer(model, kernels_of(proto), random_inputs(proto, batch=2), min_sparsity=0.1)
    dense, many, few = timer.time_files([keep(model, 1.0), keep(model, 0.5), keep(model, 0.02)])
    assert dense is None  # no layer has enough zeros
    assert many is not None
    assert few is not None
    assert few.ratio < many.ratio
    assert few.layer_ms.keys() == {"first.weight", "second.weight"}
    assert all(few.layer_ms[name] < many.layer_ms[name] for name in few.layer_ms)


def test_files_are_timed_on_the_first_sample(
    kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_timing.library, "sparse_ops_library", lambda: kernels)
    proto = two_convs()
    feeds = random_inputs(proto, batch=3)
    timer = FastFileTimer(OnnxModel.from_proto(proto), kernels_of(proto), feeds)
    assert {name: len(array) for name, array in timer.sample.items()} == {"x": 1}
