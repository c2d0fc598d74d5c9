"""Sums of int8 files on x86 without VNNI, computed as its instructions do.

vpmaddubsw multiplies activations (0 to 255) by weights (-128 to 127) in pairs and adds each pair in
16 bits. Sums outside -32,768 to 32,767 are clipped. Then vpmaddwd adds in 32 bits. With VNNI, all
products are added in 32 bits at once.
"""

import functools

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from ltp_pipeline.exporters.int8.dynamic import LARGEST_STEPS, quantize_weight
from tests.support.models import (
    Array,
    conv_bn_classifier,
    mlp,
    prune,
    random_inputs,
    run_onnxruntime,
)
from tests.support.quantized import make_calibration, quantize_model
from tests.support.sequence_models import vision_transformer

pytestmark = pytest.mark.usefixtures("quickly")

PAIRS = st.tuples(
    st.integers(1, 5), st.integers(1, 8), st.integers(1, 5)
)  # rows, pairs to be summed, columns


def exact(x: Array, w: Array) -> Array:
    """The product in whole numbers."""
    return x.astype(np.int64) @ w.astype(np.int64)


def without_vnni(x: Array, w: Array) -> Array:
    """The product as vpmaddubsw and vpmaddwd compute it; an odd row is filled up with a zero."""
    assert x.dtype == np.uint8
    assert w.dtype == np.int8
    if x.shape[-1] % 2:
        x, w = np.pad(x, ((0, 0), (0, 1))), np.pad(w, ((0, 1), (0, 0)))
    products = x[:, :, None].astype(np.int64) * w[None].astype(np.int64)
    pairs = products[:, 0::2] + products[:, 1::2]
    return np.clip(pairs, -(2**15), 2**15 - 1).sum(axis=1)


def test_pair_sum_by_hand_saturates_with_8_bits_only() -> None:
    """8 bits: 255 · 127 · 2 = 64,770 becomes 32,767; 7 bits: 255 · 64 · 2 = 32,640 stays."""
    x = np.array([[255, 255]], np.uint8)
    assert without_vnni(x, np.array([[127], [127]], np.int8)).tolist() == [[32_767]]
    assert without_vnni(x, np.array([[-127], [-127]], np.int8)).tolist() == [[-32_768]]
    assert without_vnni(x, np.array([[64], [64]], np.int8)).tolist() == [[32_640]]
    assert without_vnni(x, np.array([[65], [65]], np.int8)).tolist() == [
        [32_767]
    ]  # the least that does not fit
    assert exact(x, np.array([[65], [65]], np.int8)).tolist() == [[33_150]]


@given(st.data())
@settings(deadline=None)
def test_pair_sums_with_7_bits_never_saturate(data: st.DataObject) -> None:
    rows, pairs, columns = data.draw(PAIRS)
    finite = st.floats(-(2.0**100), 2.0**100, width=32)
    weight = data.draw(hnp.arrays(np.float32, (2 * pairs, columns), elements=finite))
    x = data.draw(hnp.arrays(np.uint8, (rows, 2 * pairs)))
    steps, _ = quantize_weight(weight, 1, 7)
    assert np.abs(steps).max() <= LARGEST_STEPS[7]
    for given_ in (x, np.full_like(x, 255)):  # the largest that there are
        assert np.array_equal(without_vnni(given_, steps), exact(given_, steps))


@given(hnp.arrays(np.float32, (4, 3), elements=st.floats(0.875, 1.0, width=32)))
@settings(deadline=None)
def test_pair_sums_with_8_bits_can_saturate(weight: Array) -> None:
    x, (steps, _) = np.full((1, 4), 255, np.uint8), quantize_weight(weight, 1, 8)
    assert (without_vnni(x, steps) < exact(x, steps)).all()


# Real files


@functools.cache
def file(name: str, bits: int) -> tuple[ModelProto, ModelProto]:
    """A float model with neighboring large weights of the same sign, and its int8 file."""
    make = {
        "static": lambda: prune(conv_bn_classifier(channels=16), 0.3),
        "dynamic": vision_transformer,
        "mlp": mlp,
    }
    model = make[name]()
    for tensor in model.graph.initializer:
        if len(tensor.dims) in (2, 4):
            tensor.CopyFrom(
                numpy_helper.from_array(np.abs(numpy_helper.to_array(tensor)), tensor.name)
            )
    return model, quantize_model(
        model, make_calibration(model, value=0.9, int8_reduce_range=bits == 7)
    ).model.to_proto()


def watched(model: ModelProto, names: list[str]) -> dict[str, Array]:
    """These values on samples with large activations, unoptimised."""
    proto = ModelProto()
    proto.CopyFrom(model)
    proto.graph.output.extend(ValueInfoProto(name=name) for name in names)
    feeds = {name: 3 * x for name, x in random_inputs(model, batch=2, seed=7).items()}
    return dict(
        zip(
            [value.name for value in proto.graph.output], run_onnxruntime(proto, feeds), strict=True
        )
    )


def factors(model: ModelProto) -> list[tuple[NodeProto, str, str]]:
    """Each product of a kernel: its node, the activation in 8 bits and the kernel in 8 bits."""
    producers = {output: node for node in model.graph.node for output in node.output}
    int8_names = {
        tensor.name
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.INT8
    }
    result = []
    for node in model.graph.node:
        if node.op_type == "MatMulInteger":
            result.append((node, node.input[0], node.input[1]))
        elif node.op_type in ("Conv", "Gemm", "MatMul"):
            before = [producers.get(name) for name in node.input[:2]]
            if all(n is not None and n.op_type == "DequantizeLinear" for n in before):
                x, w = (n.input[0] for n in before if n is not None)
                result.append((node, x, w))
    assert all(w in int8_names or producers[w].op_type == "Transpose" for _, _, w in result)
    return result


def as_matrices(node: NodeProto, x: Array, w: Array) -> tuple[Array, Array]:
    """The two factors of a layer as a matrix product; the windows of a Conv are its rows."""
    if node.op_type != "Conv":
        turned = any(a.name == "transB" and a.i for a in node.attribute)
        return x.reshape(-1, x.shape[-1]), w.T if turned else w
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    assert attributes.get("group", 1) == 1
    (top, left, bottom, right), size = attributes["pads"], w.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, size, axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, w[0].size), w.reshape(len(w), -1).T


def saturating(model: ModelProto) -> list[str]:
    """The layers whose sums differ without VNNI, on real activations and on the largest ones."""
    layers = factors(model)
    initial = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    expected = {name for _, x, w in layers for name in (x, w) if name not in initial}
    values = {
        **initial,
        **watched(model, sorted(expected - {value.name for value in model.graph.output})),
    }
    assert layers
    wrong = []
    for node, x_name, w_name in layers:
        x, w = as_matrices(node, values[x_name], values[w_name])
        for given_ in (x, np.full_like(x[:1], 255)):
            if not np.array_equal(without_vnni(given_, w), exact(given_, w)):
                wrong.append(node.name or node.output[0])
    return wrong


@pytest.mark.parametrize("name", ["static", "mlp", "dynamic"])
def test_file_with_7_bits_never_saturates(name: str) -> None:
    _, built = file(name, 7)
    assert ("MatMulInteger" in {node.op_type for node in built.graph.node}) is (name == "dynamic")
    assert saturating(built) == []


@pytest.mark.parametrize("name", ["static", "mlp", "dynamic"])
def test_file_with_8_bits_can_saturate(name: str) -> None:
    assert saturating(file(name, 8)[1])
