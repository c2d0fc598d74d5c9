from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper

from ltp_pipeline.exporters.sparse_ops import functions
from ltp_pipeline.system.arrays import Array
from tests.support.kernels import make_sparse, open_session
from tests.support.models import Graph

CLIP = {"min": -0.5, "max": 0.75}


def both(name: str, opset: int) -> tuple[ModelProto, ModelProto, Array]:
    """A graph with one of the operators, the same in standard ones, and an input."""
    base = name.removesuffix("Relu").removesuffix("Clip")
    rng, ours, theirs = np.random.default_rng(0), Graph(), Graph()
    shape = (5, 24) if "Gemm" in base else (2, 24, 5) if "Left" in base else (2, 5, 24)
    weights, attributes = make_sparse(rng, (24, 12), 0.8), {}
    if "Conv" in base:
        shape, weights = (2, 6, 7, 9), make_sparse(rng, (12, 6, 3, 3), 0.8)
        attributes = {"pads": [1, 1, 0, 1], "strides": [1, 2], "kernel_shape": [3, 3]}
    elif "Gemm" in base:
        attributes = {"alpha": 0.5, "beta": 2.0}
    elif "Left" in base:
        weights = weights.T
    for g in (ours, theirs):
        g.tensor("w", weights)
        g.tensor("b", np.linspace(-1, 1, 12))
        if "Add" in base:
            g.tensor("z", np.linspace(-1, 1, 2 * 12 * 6 * 5).reshape(2, 12, 6, 5))
    inputs = ["w", "x"] if "Left" in base else ["x", "w"]
    bias, added = ["b"] * ("Bias" in base), ["z"] * ("Add" in base)
    activation = name.removeprefix(base)
    limits = CLIP if activation == "Clip" else {}
    ours.add(
        name, *inputs, *bias, *added, outputs=["y"], domain=functions.DOMAIN, **attributes, **limits
    )
    operator = next(o for o in ("Conv", "MatMul", "Gemm") if o in base)
    if operator == "MatMul":
        bias, added = [], bias
    y = theirs.add(operator, *inputs, *bias, **attributes)
    for value in added:
        y = theirs.add("Add", y, value)
    if activation == "Clip" and opset >= functions.CLIP_INPUT_OPSET:
        y = theirs.add(
            "Clip", y, theirs.tensor("low", CLIP["min"]), theirs.tensor("high", CLIP["max"])
        )
    elif activation:
        y = theirs.add(activation, y, **limits)
    plain = theirs.model({"x": shape}, [y], opset)
    dims = [d.dim_value for d in plain.graph.output[0].type.tensor_type.shape.dim]
    output = helper.make_tensor_value_info("y", 1, dims)
    graph = helper.make_graph(ours.nodes, "ours", plain.graph.input, [output], ours.tensors)
    imports = [
        helper.make_opsetid("", opset),
        helper.make_opsetid(functions.DOMAIN, functions.VERSION),
    ]
    built = [functions.make_function(name, opset)]
    model = helper.make_model(
        graph, opset_imports=imports, ir_version=functions.IR_VERSION, functions=built
    )
    return model, plain, rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", functions.FUNCTION_NAMES)
def test_function_matches_standard_operators_bit_for_bit(name: str, kernels: Path):
    ours, theirs, x = both(name, 17)
    onnx.checker.check_model(ours, full_check=True)
    (expected,) = open_session(theirs).run(None, {"x": x})
    (inlined,) = open_session(ours).run(None, {"x": x})
    (fast,) = open_session(ours, kernels).run(None, {"x": x})
    assert inlined.tobytes() == expected.tobytes()
    np.testing.assert_allclose(fast, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [8, 10, 12, 13, 21])
def test_supports_clip_in_most_opsets(opset: int):
    assert functions.supports_clip(opset)
    ours, theirs, x = both("SparseConvBiasAddClip", opset)
    onnx.checker.check_model(ours, full_check=True)
    (inlined,), (expected,) = (
        open_session(ours).run(None, {"x": x}),
        open_session(theirs).run(None, {"x": x}),
    )
    assert inlined.tobytes() == expected.tobytes()


def test_supports_clip_is_false_in_opset_11():
    assert not functions.supports_clip(11)
