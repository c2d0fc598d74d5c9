"""Packed files decode when they are loaded, in every kind of codes."""

from functools import partial

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ltp_pipeline.exporters.encodings import ENCODINGS, packed, packed_codec
from ltp_pipeline.exporters.files import read_back
from ltp_pipeline.graph.model import OnnxModel
from tests.support.encoded import (
    LEVELS,
    encode_as,
    force_code,
    model_and_kernels,
    run_model,
    to_dense,
    verify_as,
)
from tests.support.models import sparse_array

encode, verify = partial(encode_as, "packed"), partial(verify_as, "packed")


@pytest.mark.parametrize(
    "small", [0, 6000, packed.SMALL_TENSOR]
)  # each tensor by itself, one of two, both together
@pytest.mark.parametrize("opset", [11, 13, 18, 21])
@pytest.mark.parametrize("kind", packed_codec.KINDS)
@pytest.mark.parametrize("density", [0.0, 0.002, 0.1, 1.0])
def test_encode_with_every_kind_folds_and_matches_dense(
    monkeypatch, tmp_path, kind, opset, density, small
):
    model, kernels = model_and_kernels(density, opset)
    force_code(monkeypatch, kind)
    monkeypatch.setattr(packed, "SMALL_TENSOR", small)
    encoded = encode(model, kernels)
    assert not {t.name for t in encoded.graph.initializer} & set(kernels)
    verify(encoded, kernels)
    for level in LEVELS:
        assert run_model(encoded, level) == run_model(model, level)
    run_model(encoded, LEVELS[1], tmp_path)
    left = onnx.load(tmp_path / "optimized.onnx").graph
    assert [node.op_type for node in left.node] == ["Conv", "Conv"]
    assert {t.name for t in left.initializer} == set(kernels)


@pytest.mark.parametrize("kind", ["6v", "4f", "m"])
def test_encode_half_precision_matches_dense(monkeypatch, kind):
    model, kernels = model_and_kernels(0.1, dtype=np.float16)
    force_code(monkeypatch, kind)
    encoded = encode(model, kernels)
    verify(encoded, kernels)
    assert run_model(encoded, LEVELS[1]) == run_model(model, LEVELS[1])


@pytest.mark.parametrize("kind", packed_codec.KINDS)
def test_encode_runs_in_reference_evaluator(monkeypatch, kind):
    model, kernels = model_and_kernels(0.1)
    force_code(monkeypatch, kind)
    x = np.random.default_rng(0).standard_normal((1, 17, 8, 8)).astype(np.float32)
    expected = ReferenceEvaluator(model).run(None, {"x": x})[0]
    assert (ReferenceEvaluator(encode(model, kernels)).run(None, {"x": x})[0] == expected).all()


def test_encode_scatters_small_tensors_together():
    model, kernels = model_and_kernels()
    encoded = encode(model, kernels)
    assert [n.op_type for n in encoded.graph.node].count("ScatterElements") == 1
    model.graph.initializer[1].doc_string = "about b"
    encoded = encode(model, kernels)
    assert [n.op_type for n in encoded.graph.node].count("ScatterElements") == 2
    doc_strings = {t.name: t.doc_string for t in to_dense(encoded).graph.initializer}
    assert doc_strings == {"a.weight": "", "b.weight": "about b"}


def test_encode_keeps_dense_weights():
    model, kernels = model_and_kernels(1.0)
    assert to_dense(encode(model, kernels)).SerializeToString() == model.SerializeToString()


@pytest.mark.parametrize("opset", [7, 9, 10])
def test_encode_keeps_old_opsets_dense(opset):
    model, kernels = model_and_kernels(opset=opset)
    assert encode(model, kernels).SerializeToString() == model.SerializeToString()


def test_encode_keeps_model_with_reserved_name_dense():
    model, kernels = model_and_kernels()
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = "ltp/0/p"
    assert encode(model, kernels).SerializeToString() == model.SerializeToString()


def test_encode_removes_weight_inputs_of_old_ir_version():
    model, kernels = model_and_kernels(opset=11)
    model.ir_version = 3
    for name, array in kernels.items():
        model.graph.input.append(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
        )
    onnx.checker.check_model(model, full_check=True)
    encoded = encode(model, kernels)
    assert [value.name for value in encoded.graph.input] == ["x"]
    assert encoded.ir_version == 4
    verify(encoded, kernels)
    assert run_model(encoded, LEVELS[1]) == run_model(model, LEVELS[1])


def test_encode_keeps_nested_weight_dense():
    array = sparse_array((64, 64), 0.05)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 64]) for n in ("x", "y"))
    then_ = helper.make_graph(
        [helper.make_node("MatMul", ["x", "inner"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, [1, 64])],
        [numpy_helper.from_array(array, "inner")],
    )
    else_ = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, [1, 64])],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("ReduceSum", ["h"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["flag"]),
        helper.make_node("If", ["flag"], ["y"], then_branch=then_, else_branch=else_),
    ]
    zero = numpy_helper.from_array(np.float32(0), "zero")
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(array, "w"), zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    for format_ in ENCODINGS.values():
        encoded = format_.encode(OnnxModel.from_proto(model), ["w", "inner"]).to_proto()
        read_back.verify_weights(
            OnnxModel.from_proto(encoded), {"w": array, "inner": array}, format_.name
        )
        inner = next(
            a.g for n in encoded.graph.node for a in n.attribute if a.name == "then_branch"
        )
        assert [t.name for t in inner.initializer] == ["inner"]
        assert run_model(encoded, LEVELS[1]) == run_model(model, LEVELS[1])


def dense_tensors(**arrays: np.ndarray) -> OnnxModel:
    """Return a model that adds up tensors, which are its layer weights here."""
    nodes = [helper.make_node("ReduceSum", [name], [f"{name}_sum"]) for name in arrays]
    nodes.append(helper.make_node("Sum", [f"{name}_sum" for name in arrays], ["y"]))
    graph = helper.make_graph(
        nodes,
        "tensors",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return OnnxModel.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    )


@pytest.mark.parametrize("density", [0.5, 0.1, 0.02])
def test_count_weight_bits_is_the_growth_of_the_file_per_nonzero(density):
    def encode_with(fraction):
        values = np.random.default_rng(0).random(2**16)
        weight = np.where(values < fraction, values + 1, 0).astype(np.float32)
        model = dense_tensors(w=weight)
        size = len(ENCODINGS["packed"].encode(model, ["w"]).to_proto().SerializeToString())
        return np.count_nonzero(weight), size, model

    nonzeros, size, model = encode_with(density)
    more, larger, _ = encode_with(density * 1.05)
    bits = packed.count_weight_bits(model, ["w"])["w"]
    assert 32 <= bits <= 40
    assert bits == pytest.approx(8 * (larger - size) / (more - nonzeros), rel=0.05)


def test_count_weight_bits_of_half_precision_is_half_of_the_value():
    weight = np.where(np.arange(2**14) % 10 == 0, 1, 0)
    model = dense_tensors(w=weight.astype(np.float16))
    assert 16 < packed.count_weight_bits(model, ["w"])["w"] <= 24


@pytest.mark.parametrize("name", ["small", "empty", "integers"])
def test_count_weight_bits_of_a_weight_whose_zeros_save_nothing_is_one(name):
    model = dense_tensors(
        small=np.eye(4, dtype=np.float32),
        empty=np.zeros(2**14, np.float32),
        integers=np.eye(128, dtype=np.int32),
    )
    assert packed.count_weight_bits(model, [name]) == {name: 1}
