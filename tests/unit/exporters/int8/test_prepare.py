"""Graphs are prepared for onnxruntime's quantization tool."""

import numpy as np
import pytest
from onnx import ModelProto

from ltp_pipeline.exporters.int8.prepare import TOOL_SUFFIXES, prepare_graph
from ltp_pipeline.graph.model import OnnxModel
from tests.support.models import Graph, random_inputs, run_onnxruntime
from tests.support.quantized import kernels_of, quantised

pytestmark = pytest.mark.usefixtures("quickly")


def made_ready(model: ModelProto) -> ModelProto:
    return prepare_graph(OnnxModel.from_proto(model), kernels_of(model))[0].to_proto()


def chain(between: str = "between", node: str = "second", offset: str = "offset") -> ModelProto:
    """Two products with a sum between them; what is not a kernel has the names given."""
    g = Graph()
    g.add("MatMul", "x", g.random("w", 6, 8), name="first", outputs=("a",))
    g.add("Add", "a", g.random(offset, 8), outputs=(between,))
    g.add("MatMul", between, g.random("v", 8, 4), name=node, outputs=("y",))
    return g.model({"x": ("N", 6)}, ["y"])


def nearly(model: ModelProto, built: ModelProto) -> bool:
    feeds = random_inputs(model, batch=16, seed=3)
    before, after = (run_onnxruntime(m, feeds)[0] for m in (model, built))
    return bool(np.abs(before - after).max() <= 0.05 * np.abs(before).max())


@pytest.mark.parametrize("end", TOOL_SUFFIXES)
def test_prepare_graph_renames_conflicts_with_tool(end: str) -> None:
    model = chain(between=f"a{end}", node=f"x{end}", offset=f"w{end}")
    built = quantised(model)
    assert built.quantization is not None
    assert built.quantization.num_layers == 2
    assert nearly(model, built.model.to_proto())


def test_prepare_graph_keeps_other_names() -> None:
    model = chain()
    assert made_ready(model).graph == model.graph


def test_prepare_graph_keeps_conflicting_weight_name() -> None:
    g = Graph()
    g.add(
        "MatMul",
        g.add("Relu", g.add("MatMul", "x", g.random("w", 6, 8))),
        g.random("w_quantized", 8, 4),
    )
    g.nodes[-1].output[0] = "y"
    model = g.model({"x": ("N", 6)}, ["y"])
    built = quantised(model)
    assert built.quantization is not None
    assert list(built.quantization.float_layers) == ["w"]
    assert "w_quantized" in built.quantization.float_layers["w"]
    assert nearly(model, built.model.to_proto())


@pytest.mark.parametrize(
    ("shape", "is_row"), [((1, 8), True), ((8,), True), ((), False), ((1,), False), ((1, 1), False)]
)
def test_prepare_graph_flattens_bias_of_one_row(shape: tuple[int, ...], is_row: bool) -> None:
    g = Graph()
    first = g.add(
        "Gemm", "x", g.random("w", 6, 8), g.tensor("c", g.rng.standard_normal(shape)), name="first"
    )
    g.gemm(g.add("Relu", first), "fc", 8, 4)
    g.nodes[-1].output[0] = "y"
    model = g.model({"x": ("N", 6)}, ["y"])
    built = quantised(model)
    assert built.quantization is not None
    assert list(built.quantization.float_layers) == ([] if is_row else ["w"])
    assert is_row or "Gemm 'first'" in built.quantization.float_layers["w"]
    assert nearly(model, built.model.to_proto())


def test_prepare_graph_keeps_bias_with_other_readers() -> None:
    g = Graph()
    g.add("Gemm", "x", g.random("w", 6, 8), g.random("c", 1, 8), outputs=("h",))
    g.add("Add", "h", "c", outputs=("y",))
    model = g.model({"x": ("N", 6)}, ["y"])
    assert made_ready(model).graph == model.graph
