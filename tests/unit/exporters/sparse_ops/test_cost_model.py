"""Layers are converted if they cost less than dense ones; others have a reason."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto

from ltp_pipeline.exporters.sparse_ops.cost_model import (
    SparseLayerSelection,
    compute_block_fraction,
    select_layers,
)
from ltp_pipeline.graph.model import OnnxModel
from tests.support.kernels import conv_net, with_zeros
from tests.support.models import Graph, random_inputs
from tests.support.quantized import kernels_of


def chosen(
    model: ModelProto,
    path: str = "avx512",
    accelerate_min_sparsity: float | None = None,
    batch: int = 1,
) -> SparseLayerSelection:
    return select_layers(
        OnnxModel.from_proto(model),
        kernels_of(model),
        random_inputs(model, batch=batch),
        path,
        accelerate_min_sparsity,
    )


def two_convs(first: float, second: float) -> ModelProto:
    """A Conv on 16×16 pixels and one on 4×4, with these shares of zeros."""
    g = Graph()
    x = g.add("MaxPool", g.conv("x", "large", 16, 16), kernel_shape=[4, 4], strides=[4, 4])
    g.add("Relu", g.conv(x, "small", 16, 16), outputs=("y",))
    return with_zeros(g.model({"x": ("N", 16, 16, 16)}, ["y"]), {"large": first, "small": second})


def product(share: float, rows: int) -> ModelProto:
    g = Graph()
    g.random("w", 64, 64)
    g.add("MatMul", "x", "w", outputs=("y",))
    return with_zeros(g.model({"x": ("N", rows, 64)}, ["y"]), {"w": share})


@pytest.mark.parametrize(("shares", "is_selected"), [((0.95, 0.0), True), ((0.0, 0.95), False)])
def test_select_layers_weighs_convs_by_multiply_adds(
    shares: tuple[float, float], is_selected: bool
) -> None:
    result = chosen(two_convs(*shares))
    assert result.weight_names == (("large.weight", "small.weight") if is_selected else ())
    assert all("of the dense time" in why for why in result.skipped.values())


@pytest.mark.parametrize(
    ("share", "rows", "is_selected"),
    [
        (0.8, 128, True),
        (0.8, 1, False),
        (0.97, 1, True),
        (0.1, 128, False),
        (0.9, 2, False),
        (0.9, 8, True),
    ],
)
def test_select_layers_needs_more_zeros_for_few_rows(
    share: float, rows: int, is_selected: bool
) -> None:
    assert bool(chosen(product(share, rows)).weight_names) is is_selected


@pytest.mark.parametrize(("columns", "is_selected"), [(2, False), (128, True)])
def test_select_layers_counts_rows_of_each_matrix(columns: int, is_selected: bool) -> None:
    g = Graph()
    g.random("w", 64, 64)
    g.add("MatMul", "w", "x", outputs=("y",))
    model = with_zeros(g.model({"x": ("N", 256, 64, columns)}, ["y"]), {"w": 0.9})
    assert bool(chosen(model).weight_names) is is_selected


@pytest.mark.parametrize(("size", "is_selected"), [(2, False), (16, True)])
def test_select_layers_needs_more_zeros_for_few_pixels(size: int, is_selected: bool) -> None:
    g = Graph()
    g.add("Relu", g.conv("x", "c", 64, 64), outputs=("y",))
    assert (
        bool(
            chosen(
                with_zeros(g.model({"x": ("N", 64, size, size)}, ["y"]), {"c": 0.9})
            ).weight_names
        )
        is is_selected
    )


@pytest.mark.parametrize(("outputs", "is_selected"), [(4, False), (64, True)])
def test_select_layers_needs_more_zeros_for_few_outputs(outputs: int, is_selected: bool) -> None:
    g = Graph()
    g.random("w", 64, outputs)
    g.add("MatMul", "x", "w", outputs=("y",))
    model = with_zeros(g.model({"x": ("N", 128, 64)}, ["y"]), {"w": 0.8})
    assert bool(chosen(model).weight_names) is is_selected


def test_select_layers_skips_convs_of_small_groups() -> None:
    g = Graph()
    x = g.conv(g.conv("x", "wide", 32, 32, size=1), "depthwise", 32, 32, group=32)
    g.add("Relu", x, outputs=("y",))
    result = chosen(with_zeros(g.model({"x": ("N", 32, 8, 8)}, ["y"]), {"wide": 0.9}))
    assert result.weight_names == ("wide.weight",)
    assert "groups of fewer than 16" in result.skipped["depthwise.weight"]


def test_select_layers_without_fast_instructions_needs_min_sparsity() -> None:
    model = conv_net(0.95)
    assert (
        "no fast instructions for this processor (portable)"
        in chosen(model, "portable").skipped["a.weight"]
    )
    assert len(chosen(model, "portable", accelerate_min_sparsity=0.9).weight_names) == 4
    assert chosen(model, "portable", accelerate_min_sparsity=0.99).weight_names == ()


def test_select_layers_needs_more_zeros_for_slower_instructions() -> None:
    model = product(0.4, 128)
    assert chosen(model, "avx512").weight_names
    assert not chosen(model, "avx2").weight_names


def test_select_layers_gives_reason_of_ineligible_weights() -> None:
    g = Graph()
    g.random("up.weight", 8, 8, 2, 2)
    g.tensor("q", np.ones((8, 8, 1, 1)), np.int8)
    g.tensor("scale", 0.1)
    x = g.add("ConvTranspose", "x", "up.weight", name="grow")
    g.add("Conv", x, g.add("DequantizeLinear", "q", "scale"), outputs=("y",))
    result = chosen(g.model({"x": ("N", 8, 4, 4)}, ["y"]))
    assert "ConvTranspose 'grow'" in result.skipped["up.weight"]
    assert result.skipped["q"] == "is already quantized"
    g = Graph()
    g.tensor("half", np.ones((8, 8)), np.float16)
    g.add("MatMul", "x", "half", outputs=("y",))
    half = g.model(
        {"x": ("N", 8)}, ["y"], types={"x": TensorProto.FLOAT16, "y": TensorProto.FLOAT16}
    )
    assert chosen(half).skipped == {"half": "has type FLOAT16"}


@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 5),
    axis=st.integers(0, 1),
    seed=st.integers(0, 99),
)
def test_compute_block_fraction_covers_every_nonzero(
    rows: int, columns: int, axis: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    blocks = rng.random((-(-rows // 4), columns)) < 0.5
    full = np.repeat(blocks, 4, axis=0)[:rows].astype(np.float32)
    some = full * (rng.random(full.shape) < 0.5)
    turned = [np.moveaxis(w, 0, axis) for w in (full, some)]
    shares = [compute_block_fraction(w, axis) for w in turned]
    assert shares[1] <= shares[0]
    assert shares[1] >= np.count_nonzero(some) / some.size
    assert shares[0] == pytest.approx(np.count_nonzero(full) / full.size)
