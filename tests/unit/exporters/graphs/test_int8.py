"""The int8 graph keeps zeros, runs in 8 bits, and is refused if it cannot be built."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, version_converter

from ltp_pipeline.errors import ExportFailed, UnsupportedModel
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files import run_proof
from ltp_pipeline.exporters.files.nonzeros import NonzeroIndex
from ltp_pipeline.exporters.files.read_back import verify_weights
from ltp_pipeline.exporters.graphs import int8
from ltp_pipeline.exporters.graphs.graph import GraphContext
from ltp_pipeline.exporters.int8 import search
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import write_model
from tests.support.models import (
    Graph,
    conv_bn_classifier,
    in_constants,
    mlp,
    prune,
    random_inputs,
    run_onnxruntime,
)
from tests.support.quantized import kernels_of, make_calibration, quantize_model, run_outputs
from tests.support.sequence_models import language_model, recurrent, vision_transformer

pytestmark = pytest.mark.usefixtures("quickly")

BLOCK = ("QLinearConv", "QLinearAdd", "QLinearGlobalAveragePool", "QGemm")


def optimised(model: OnnxModel, folder: Path) -> Counter[str]:
    """The operators that onnxruntime runs."""
    path, optimized_path = folder / "int8.onnx", folder / "optimized.onnx"
    write_model(model, path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(optimized_path)
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(optimized_path).graph.node)


def nearly_the_same(model: ModelProto, built: OnnxModel, share: float = 0.1) -> bool:
    feeds = random_inputs(model, batch=16, seed=3)
    before, after = run_outputs(model, feeds), run_outputs(built.to_proto(), feeds)
    return bool(np.abs(before - after).max() <= share * np.abs(before).max())


def test_int8_graph_quantizes_every_layer_and_keeps_zeros() -> None:
    model = prune(conv_bn_classifier(), 0.8)
    built = quantize_model(model)
    assert built.weight_names == tuple(f"{name}_quantized" for name in kernels_of(model))
    for name in kernels_of(model):
        steps = built.weights[f"{name}_quantized"]
        assert steps.dtype == np.int8
        assert (steps[OnnxModel.from_proto(model).get_array(name) == 0] == 0).all()
        assert np.abs(steps).max() == 64  # 7 bits, all of them used
    assert nearly_the_same(model, built.model)


def test_int8_graph_runs_in_8_bits_in_onnxruntime(tmp_path: Path) -> None:
    result = optimised(quantize_model(conv_bn_classifier()).model, tmp_path)
    assert set(BLOCK) <= set(result)
    assert not {"Conv", "Gemm", "Add", "DequantizeLinear"} & set(result)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_int8_graph_in_any_encoding_gives_same_outputs(encoding: str, tmp_path: Path) -> None:
    model = prune(conv_bn_classifier(channels=16), 0.9)
    built, feeds = quantize_model(model), random_inputs(model, batch=4)
    path = tmp_path / f"{encoding}.onnx"
    assert built.weight_names
    write_model(
        ENCODINGS[encoding].encode(built.model, NonzeroIndex(built.model, built.weight_names)), path
    )
    verify_weights(path, built.weights, encoding)
    run_proof.verify_outputs(
        path, feeds, run_proof.run_dense_model(built.model, built.weight_names, feeds)
    )
    assert np.array_equal(
        run_onnxruntime(str(path), feeds)[0], run_outputs(built.model.to_proto(), feeds)
    )


def test_int8_graph_packed_is_smaller_than_float() -> None:
    model = prune(conv_bn_classifier(channels=64), 0.9)
    built = quantize_model(model)
    small, float_ = (
        ENCODINGS["packed"].encode(m, NonzeroIndex(m, k)).to_proto().ByteSize()
        for m, k in (
            (built.model, built.weight_names or ()),
            (OnnxModel.from_proto(model), kernels_of(model)),
        )
    )
    assert small < 0.6 * float_


def test_int8_graph_with_7_bits_cannot_saturate() -> None:
    """x86 without VNNI adds two products of an activation and a weight in 16 bits.

    By hand: with weights of 8 bits, 255 · 127 · 2 = 64,770 becomes 32,767. With 7 bits,
    255 · 64 · 2 = 32,640 stays.
    """
    g = Graph()
    g.tensor("w", np.array([[1.0, -1.0], [1.0, -1.0], [1.0, -1.0], [1.0, -1.0]]))
    g.add("MatMul", "x", "w", name="product", outputs=("y",))
    model = g.model({"x": ("N", 4)}, ["y"])
    feeds = [{"x": np.ones((8, 4), np.float32)}]
    for bits, saturates in ((7, False), (8, True)):
        built = quantize_model(model, make_calibration(model, feeds, int8_reduce_range=bits == 7))
        weight = built.weights["w_quantized"].astype(np.int64)
        pairs = 255 * weight[0::2] + 255 * weight[1::2]
        clipped = np.clip(pairs, -(2**15), 2**15 - 1)
        assert bool((clipped != pairs).any()) is saturates
    x = np.ones((1, 4), np.float32)
    assert np.allclose(
        run_outputs(
            quantize_model(model, make_calibration(model, feeds)).model.to_proto(), {"x": x}
        ),
        [[4, -4]],
        rtol=0.01,
    )


@pytest.mark.parametrize("make", [language_model, vision_transformer])
def test_int8_graph_of_transformer_is_dynamic(make: object, tmp_path: Path) -> None:
    model = make()  # type: ignore[operator]
    built = quantize_model(model, make_calibration(model, value=0.9))
    assert built.quantization is not None
    assert built.quantization.method == search.DYNAMIC
    assert built.quantization.samples is None
    result = optimised(built.model, tmp_path)
    assert (
        result["DynamicQuantizeMatMul"] + result["MatMulIntegerToFloat"]
        == built.quantization.num_layers
    )


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_int8_graph_keeps_recurrent_layers_float(op: str) -> None:
    model = recurrent(op)
    built = quantize_model(model)
    assert built.quantization is not None
    left = built.quantization.float_layers
    assert len(left) == 2
    assert all("recurrent layers compute in float" in reason for reason in left.values())
    assert all(name in built.notes[-1] for name in left)
    assert built.weight_names is not None
    assert set(left) < set(built.weight_names)


def test_int8_graph_keeps_sensitive_layer_float() -> None:
    """A weight of 1000, the same for all scores, leaves no steps for the weights that decide."""
    g = Graph(1)
    g.tensor("scores", np.vstack([np.full((1, 4), 1000.0), np.eye(4), np.zeros((1, 4))]))
    g.tensor("nothing", np.zeros((6, 4)))
    g.add("Add", g.add("MatMul", "x", "scores"), g.add("MatMul", "x", "nothing"), outputs=("y",))
    model = g.model({"x": ("N", 6)}, ["y"])
    without = quantize_model(model, int8_trials=0).quantization
    result = quantize_model(model).quantization
    assert without is not None
    assert result is not None
    assert without.validation_drop > 0.003 >= result.validation_drop
    assert result.float_layers == {"scores": search.SENSITIVE}


def test_int8_graph_without_layers_raises_unsupported_model() -> None:
    with pytest.raises(UnsupportedModel, match="no layer"):
        quantize_model(conv_transpose())


def conv_transpose() -> ModelProto:
    g = Graph()
    g.random("w", 1, 2, 3, 3)
    g.add("ConvTranspose", "x", "w", outputs=("y",))
    return g.model({"x": ("N", 1, 8, 8)}, ["y"])


def test_check_quantizable_rejects_half_precision() -> None:
    model = mlp()
    for tensor in model.graph.initializer:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name)
        )
    with pytest.raises(UnsupportedModel) as refused:
        int8.check_quantizable(OnnxModel.from_proto(model), ["fc1.weight", "fc2.weight"])
    assert any("FLOAT16" in reason for reason in refused.value.reasons)


def test_int8_graph_of_quantized_model_raises_unsupported_model() -> None:
    once = quantize_model(mlp()).model.to_proto()
    with pytest.raises(UnsupportedModel, match="QuantizeLinear 'int8/7'"):
        quantize_model(once, make_calibration(once))


def test_int8_graph_without_data_raises_export_failed() -> None:
    model = OnnxModel.from_proto(mlp())
    with pytest.raises(ExportFailed, match="data"):
        int8.build_graph(GraphContext(model, {}, [], {}))


def of_opset_11() -> ModelProto:
    model = conv_bn_classifier()
    model.opset_import[0].version = 11
    return model


def test_int8_graph_of_old_opset_is_converted() -> None:
    model = of_opset_11()
    built = quantize_model(model)
    assert built.model.proto.opset_import[0].version == int8.OPSET
    assert nearly_the_same(model, built.model)


def test_int8_graph_of_unconvertible_opset_raises_export_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = of_opset_11()

    def fails(*_: object) -> None:
        raise RuntimeError("no adapter for Foo")

    monkeypatch.setattr(version_converter, "convert_version", fails)
    with pytest.raises(ExportFailed, match=r"\b11\b.*\bFoo\b"):
        quantize_model(model)


def test_int8_graph_quantizes_shared_weight_once() -> None:
    g = Graph()
    g.random("w", 6, 6)
    g.add(
        "MatMul", g.add("Relu", g.add("MatMul", "x", "w", name="a")), "w", name="b", outputs=("y",)
    )
    model = g.model({"x": ("N", 6)}, ["y"])
    built = quantize_model(model)
    assert built.weight_names == ("w_quantized",)
    assert "w" not in built.model.tensors
    assert nearly_the_same(model, built.model, 0.2)


@pytest.mark.parametrize("dead", ["all", "one"])
def test_int8_graph_keeps_bias_of_empty_channels(dead: str) -> None:
    model = conv_bn_classifier()
    weight = next(t for t in model.graph.initializer if t.name == "conv2.weight")
    array = numpy_helper.to_array(weight).copy()
    array[slice(None) if dead == "all" else 3] = 0
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    built = quantize_model(model)
    assert "conv2.weight_quantized" in (built.weight_names or ())
    assert nearly_the_same(model, built.model, 0.05)


def test_int8_graph_with_constant_activations_is_finite() -> None:
    model = mlp()
    feeds = [{"x": np.zeros((8, 6), np.float32)}]
    built = quantize_model(model, make_calibration(model, feeds))
    assert np.isfinite(run_outputs(built.model.to_proto(), random_inputs(model))).all()


def test_int8_graph_keeps_layers_with_infinite_activations_float() -> None:
    g = Graph()
    first = g.gemm("x", "fc1", 6, 8)
    g.tensor("zero", 0.0)
    infinite = g.add("Div", first, "zero")
    g.gemm(g.add("Clip", infinite, g.tensor("low", -1.0), g.tensor("high", 1.0)), "fc2", 8, 4)
    g.gemm(infinite, "fc3", 8, 4)
    g.add("Add", g.nodes[-2].output[0], g.nodes[-1].output[0], outputs=("y",))
    model = g.model({"x": ("N", 6)}, ["y"])
    result = quantize_model(model, kernels=["fc1.weight", "fc2.weight", "fc3.weight"]).quantization
    assert result is not None
    assert result.float_layers["fc3.weight"] == search.NOT_FINITE


def test_int8_graph_quantizes_weights_in_constants_and_inputs() -> None:
    assert quantize_model(in_constants(conv_bn_classifier())).weight_names
    model = mlp()
    model.graph.input.extend(
        helper.make_tensor_value_info(t.name, TensorProto.FLOAT, list(t.dims))
        for t in model.graph.initializer
    )
    built = quantize_model(model, make_calibration(mlp()), ["fc1.weight", "fc2.weight"])
    assert [value.name for value in built.model.graph.input] == ["x"]
