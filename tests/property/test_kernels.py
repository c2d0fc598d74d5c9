"""Sparse kernels against onnxruntime's own Conv and MatMul, with random shapes."""

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import ModelProto

from ltp_pipeline.exporters.sparse_ops.replace import convert_to_sparse_ops
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.system.arrays import Array
from tests.support.kernels import make_sparse, open_session
from tests.support.models import Graph

few = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


def turned(plain: ModelProto, *kernels: str) -> ModelProto:
    new, actual = convert_to_sparse_ops(OnnxModel.from_proto(plain), kernels)
    assert len(actual) == len(kernels)
    return new.to_proto()


def check(plain: ModelProto, x: Array, kernels: Path, threads: int) -> None:
    (expected,) = open_session(plain).run(None, {"x": x})
    (actual,) = open_session(turned(plain, "w"), kernels, threads).run(None, {"x": x})
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@few
@given(
    channels=st.integers(1, 40),
    outputs=st.integers(1, 20),
    groups=st.integers(1, 3),
    kernel=pairs,
    strides=pairs,
    dilations=pairs,
    pads=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    size=st.tuples(st.integers(7, 30), st.integers(7, 30)),
    images=st.integers(1, 2),
    sparsity=st.sampled_from([0, 0.5, 0.9, 0.99, 1]),
    threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 1000),
)
def test_convolutions_are_those_of_onnxruntime(
    channels: int,
    outputs: int,
    groups: int,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: list[int],
    size: tuple[int, int],
    images: int,
    sparsity: float,
    threads: int,
    seed: int,
    kernels: Path,
):
    g, rng = Graph(seed), np.random.default_rng(seed)
    w = g.tensor("w", make_sparse(rng, (outputs * groups, channels, *kernel), sparsity))
    b = g.random("b", outputs * groups)
    y = g.add("Conv", "x", w, b, strides=strides, dilations=dilations, pads=pads, group=groups)
    y = g.add("Relu", y)
    shape = (images, channels * groups, *size)
    check(
        g.model({"x": shape}, [y]), rng.standard_normal(shape).astype(np.float32), kernels, threads
    )


@few
@given(
    kernel=pairs,
    strides=pairs,
    size=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    pad=st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]),
)
def test_paddings_by_name_are_those_of_onnxruntime(
    kernel: tuple[int, int],
    strides: tuple[int, int],
    size: tuple[int, int],
    pad: str,
    kernels: Path,
):
    least = size if pad == "VALID" else kernel
    assume(all(a <= b for a, b in zip(kernel if pad == "VALID" else strides, least, strict=True)))
    g, rng = Graph(), np.random.default_rng(0)
    y = g.add(
        "Conv",
        "x",
        g.tensor("w", make_sparse(rng, (5, 3, *kernel), 0.3)),
        strides=strides,
        auto_pad=pad,
    )
    shape = (1, 3, *size)
    check(
        g.model({"x": shape}, [y]),
        rng.standard_normal(shape).astype(np.float32),
        kernels,
        threads=1,
    )


@few
@given(
    leading=st.lists(st.integers(1, 3), max_size=2),
    rows=st.integers(1, 70),
    inner=st.integers(1, 200),
    columns=st.integers(1, 70),
    left=st.booleans(),
    sparsity=st.sampled_from([0, 0.5, 0.9, 0.99, 1]),
    threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 1000),
)
def test_products_are_those_of_onnxruntime(
    leading: list[int],
    rows: int,
    inner: int,
    columns: int,
    left: bool,
    sparsity: float,
    threads: int,
    seed: int,
    kernels: Path,
):
    g, rng = Graph(seed), np.random.default_rng(seed)
    g.tensor("w", make_sparse(rng, (columns, inner) if left else (inner, columns), sparsity))
    shape = (*leading, inner, rows) if left else (*leading, rows, inner)
    y = g.add("MatMul", *(["w", "x"] if left else ["x", "w"]))
    check(
        g.model({"x": shape}, [y]), rng.standard_normal(shape).astype(np.float32), kernels, threads
    )


def test_sparse_session_in_many_threads_is_correct(kernels: Path):
    g, rng = Graph(), np.random.default_rng(0)
    y = g.add("Conv", "x", g.tensor("w", make_sparse(rng, (16, 12, 3, 3), 0.8)), pads=[1, 1, 1, 1])
    sparse_session = open_session(
        turned(g.model({"x": ("n", 12, "h", "w_")}, [y]), "w"), kernels, threads=2
    )
    inputs = [
        rng.standard_normal((1 + i % 2, 12, 5 + i, 30 - i)).astype(np.float32) for i in range(16)
    ]
    expected = [sparse_session.run(None, {"x": x})[0] for x in inputs]
    wrong = []

    def call(first: int) -> None:
        for k in range(20):
            which = (first + k) % len(inputs)
            if (
                sparse_session.run(None, {"x": inputs[which]})[0].tobytes()
                != expected[which].tobytes()
            ):
                wrong.append(which)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_sparse_conv_input_too_small_names_the_node(kernels: Path):
    g = Graph()
    y = g.conv("x", "layer 7", 4, 8, size=5, pads=[0, 0, 0, 0])
    sparse_session = open_session(
        turned(g.model({"x": ("n", 4, "h", "w")}, [y]), "layer 7.weight"), kernels
    )
    with pytest.raises(Exception, match=r"layer 7.*\b5\b.*\b4\b"):
        sparse_session.run(None, {"x": np.zeros((1, 4, 4, 9), np.float32)})
    assert sparse_session.run(None, {"x": np.zeros((0, 4, 9, 9), np.float32)})[0].shape == (
        0,
        8,
        5,
        5,
    )
