from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files.nonzeros import NonzeroIndex
from ltp_pipeline.exporters.sparse_ops import functions
from ltp_pipeline.exporters.sparse_ops.replace import convert_to_sparse_ops
from ltp_pipeline.graph.model import OnnxModel
from tests.support.kernels import make_sparse, open_session
from tests.support.models import Graph


def names(model: ModelProto, *kernels: str) -> list[str]:
    """The operators of the graph after turning it over."""
    new, _ = convert_to_sparse_ops(OnnxModel.from_proto(model), kernels)
    onnx.checker.check_model(new.to_proto())
    return [node.op_type for node in new.graph.node]


def residual(other: str = "x", between: str = "Relu", **fields: object) -> ModelProto:
    """A Conv, the sum with a value, an activation."""
    g = Graph()
    g.tensor("one", np.ones((1, 1, 1, 1)))
    if between == "Clip":
        g.tensor("low", 0.0), g.tensor("high", 6.0)
    y = g.add("Add", other, g.conv("x", "c", 8, 8, bias=True))
    y = g.add(between, y, *(["low", "high"] if between == "Clip" else []))
    return g.model({"x": ("n", 8, 6, 6)}, [y], **fields)


def test_convert_fuses_sum_and_activation():
    assert names(residual(), "c.weight") == ["SparseConvBiasAddRelu"]


def test_convert_turns_limits_into_attributes():
    new, (turned,) = convert_to_sparse_ops(
        OnnxModel.from_proto(residual(between="Clip")), ["c.weight"]
    )
    assert turned.sparse_node.op_type == "SparseConvBiasAddClip"
    assert {a.name: a.f for a in turned.sparse_node.attribute if a.name in ("min", "max")} == {
        "min": 0.0,
        "max": 6.0,
    }
    assert not {"low", "high"} & new.tensors.keys()
    assert not {"low", "high"} & new.weights.keys()


def test_convert_keeps_sum_of_other_shape():
    assert names(residual("one"), "c.weight") == ["SparseConvBias", "Add", "Relu"]


def test_convert_keeps_clip_in_opset_11():
    assert names(residual(between="Clip", opset=11), "c.weight") == ["SparseConvBiasAdd", "Clip"]


def test_convert_keeps_clip_with_nan_limit():
    model = residual(between="Clip")
    next(t for t in model.graph.initializer if t.name == "low").CopyFrom(
        onnx.numpy_helper.from_array(np.float32(np.nan).reshape(()), "low")
    )
    assert names(model, "c.weight") == ["SparseConvBiasAdd", "Clip"]


def test_convert_keeps_clip_with_overridable_limit():
    model = residual(between="Clip")
    model.graph.input.append(onnx.helper.make_tensor_value_info("high", onnx.TensorProto.FLOAT, []))
    new, _ = convert_to_sparse_ops(OnnxModel.from_proto(model), ["c.weight"])
    assert [node.op_type for node in new.graph.node] == ["SparseConvBiasAdd", "Clip"]
    assert [value.name for value in new.graph.input] == ["x", "high"]


@pytest.mark.parametrize("pad", ["SAME_UPPER", "SAME_LOWER"])
def test_convert_keeps_conv_with_same_padding_and_large_stride(pad: str):
    g = Graph()
    y = g.add("Conv", "x", g.random("w", 4, 4, 3, 3), auto_pad=pad, strides=[1, 4])
    assert names(g.model({"x": (1, 4, 9, 9)}, [y]), "w") == ["Conv"]


@pytest.mark.parametrize(
    "attributes", [{"auto_pad": "SAME_UPPER", "strides": [3, 3]}, {"strides": [4, 4]}]
)
def test_convert_converts_other_strides(attributes: dict[str, object]):
    g = Graph()
    y = g.add("Conv", "x", g.random("w", 4, 4, 3, 3), **attributes)
    assert names(g.model({"x": (1, 4, 9, 9)}, [y]), "w") == ["SparseConv"]


def test_convert_keeps_value_with_two_readers():
    g = Graph()
    y = g.conv("x", "c", 4, 4)
    z = g.add("Add", g.add("Relu", y), y)
    assert names(g.model({"x": (1, 4, 5, 5)}, [z]), "c.weight") == ["SparseConv", "Relu", "Add"]


def test_convert_keeps_value_that_is_output():
    g = Graph()
    y = g.conv("x", "c", 4, 4)
    z = g.add("Relu", y)
    assert names(g.model({"x": (1, 4, 5, 5)}, [y, z]), "c.weight") == ["SparseConv", "Relu"]


def test_convert_fuses_sum_into_one_of_two_layers():
    g = Graph()
    y = g.add("Add", g.conv("x", "a", 4, 4), g.conv("x", "b", 4, 4))
    assert names(g.model({"x": (1, 4, 5, 5)}, [y]), "a.weight", "b.weight") == [
        "SparseConv",
        "SparseConvAdd",
    ]


def test_convert_converts_only_named_weights():
    assert names(residual(), "other") == ["Conv", "Add", "Relu"]


@pytest.mark.parametrize(
    ("left", "bias", "expected"),
    [
        (False, (12,), ["SparseMatMulBias"]),
        (False, (1, 12), ["SparseMatMul", "Add"]),
        (False, (1,), ["SparseMatMul", "Add"]),
        (True, (12,), ["SparseLeftMatMul", "Add"]),
    ],
)
def test_convert_matmul_chooses_operator_by_side_and_bias(
    left: bool, bias: tuple[int, ...], expected: list[str]
):
    g = Graph()
    g.random("w", 12, 12), g.random("b", *bias)
    y = g.add("Add", g.add("MatMul", *(["w", "x"] if left else ["x", "w"])), "b")
    assert names(g.model({"x": (2, 12, 12)}, [y]), "w") == expected


@pytest.mark.parametrize(
    ("bias", "attributes", "expected"),
    [
        ((12,), {}, "SparseGemmBias"),
        ((1, 12), {}, "SparseGemmBias"),
        ((), {}, "SparseGemmBias"),
        ((5, 12), {}, "Gemm"),
        ((5, 1), {}, "Gemm"),
        ((12,), {"transA": 1}, "Gemm"),
        ((12,), {"transA": 0, "alpha": 2.0}, "SparseGemmBias"),
    ],
)
def test_convert_gemm_chooses_operator_by_bias_and_attributes(
    bias: tuple[int, ...], attributes: dict[str, object], expected: str
):
    g = Graph()
    y = g.add("Gemm", "x", g.random("w", 12, 12), g.random("b", *bias), **attributes)
    shape = (12, 5) if attributes.get("transA") else (5, 12)
    assert names(g.model({"x": shape}, [y]), "w") == [expected]


def test_convert_treats_empty_bias_name_as_none():
    g = Graph()
    y = g.add("Gemm", "x", g.random("w", 12, 12), "")
    assert names(g.model({"x": (5, 12)}, [y]), "w") == ["SparseGemm"]


def test_convert_keeps_conv_with_one_or_three_axes():
    g = Graph()
    y = g.add("Conv", "x", g.random("w", 4, 4, 3))
    assert names(g.model({"x": (1, 4, 9)}, [y]), "w") == ["Conv"]


def test_convert_twice_adds_function_once():
    once, _ = convert_to_sparse_ops(OnnxModel.from_proto(residual()), ["c.weight"])
    twice, result = convert_to_sparse_ops(once, ["c.weight"])
    assert not result
    assert twice.proto == once.proto


@pytest.mark.parametrize("encoding", ["dense", "sparse", "packed"])
def test_convert_runs_with_weights_of_every_encoding(encoding: str, kernels: Path, tmp_path: Path):
    g, rng = Graph(), np.random.default_rng(1)
    y = g.add("Conv", "x", g.tensor("w", make_sparse(rng, (32, 32, 3, 3), 0.9)), pads=[1, 1, 1, 1])
    plain = g.model({"x": (1, 32, 10, 10)}, [y])
    built, _ = convert_to_sparse_ops(OnnxModel.from_proto(plain), ["w"])
    proto = ENCODINGS[encoding].encode(built, NonzeroIndex(built, ["w"])).to_proto()
    x = rng.standard_normal((1, 32, 10, 10)).astype(np.float32)
    (reference,), (inlined,), (fast,) = (
        s.run(None, {"x": x})
        for s in (open_session(plain), open_session(proto), open_session(proto, kernels))
    )
    assert inlined.tobytes() == reference.tobytes()
    np.testing.assert_allclose(fast, reference, rtol=1e-5, atol=1e-5)
    assert functions.DOMAIN in {o.domain for o in proto.opset_import}
