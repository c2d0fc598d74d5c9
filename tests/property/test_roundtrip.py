"""Encoding and decoding is exact, and onnxruntime computes the same bits from each encoding."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from ltp_pipeline.exporters.encodings import ENCODINGS, packed_codec
from ltp_pipeline.exporters.files.decode import read_tensors, to_dense
from ltp_pipeline.exporters.files.labels import write_metadata
from ltp_pipeline.exporters.files.nonzeros import view_bits
from ltp_pipeline.exporters.files.read_back import verify_weights
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import write_model

FLOATS = {
    TensorProto.FLOAT: np.uint32,
    TensorProto.DOUBLE: np.uint64,
    TensorProto.FLOAT16: np.uint16,
    TensorProto.BFLOAT16: np.uint16,
}


def kernel_bits(
    seed: int, shape: tuple[int, ...], density: float, data_type: int, clustered: bool
) -> np.ndarray:
    """Bit patterns of a kernel: zeros, negative zeros and finite values."""
    rng = np.random.default_rng(seed)
    size = int(np.prod(shape))
    dtype = helper.tensor_dtype_to_np_dtype(data_type)
    values = (rng.standard_normal(size) + 0.01).astype(dtype)
    keep = rng.random(size) < density
    if clustered:
        keep &= np.repeat(rng.random(-(-size // 50)) < 0.3, 50)[:size]
    values[~keep] = 0
    values[~keep & (rng.random(size) < 0.1)] = -0.0
    return values.view(FLOATS[data_type])


def build(
    kernels: dict[str, tuple[int, tuple[int, ...], np.ndarray]], opset: int, as_constant: bool
) -> onnx.ModelProto:
    """A graph whose outputs are the kernels times one, widened to float."""
    nodes, initializers, outputs = [], [], []
    for name, (data_type, shape, bits) in kernels.items():
        tensor = TensorProto(name=name, data_type=data_type, dims=shape, raw_data=bits.tobytes())
        if as_constant:
            nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            initializers.append(tensor)
        nodes.append(helper.make_node("Cast", [name], [f"{name}.wide"], to=TensorProto.DOUBLE))
        nodes.append(helper.make_node("Mul", [f"{name}.wide", "x"], [f"{name}.out"]))
        outputs.append(helper.make_tensor_value_info(f"{name}.out", TensorProto.DOUBLE, shape))
    inputs = [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [1])]
    graph = helper.make_graph(nodes, "kernels", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def outputs_of(model: onnx.ModelProto, level: ort.GraphOptimizationLevel) -> list[bytes]:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [array.tobytes() for array in session.run(None, {"x": np.ones(1)})]


shapes = st.lists(st.integers(1, 12), min_size=1, max_size=4).map(tuple)
densities = st.sampled_from([0.0, 0.002, 0.02, 0.1, 0.3, 0.6, 0.95, 1.0])
kernel = st.tuples(
    st.integers(0, 2**32),
    shapes | st.just((64, 16, 3, 3)),
    densities,
    st.sampled_from(list(FLOATS)),
    st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(kernel, min_size=1, max_size=4),
    st.sampled_from([11, 12, 13, 16, 18, 21, 22]),
    st.booleans(),
)
def test_encode_round_trip_is_exact_in_every_encoding(drawn, opset, as_constant):
    kernels = {
        f"k{i}": (data_type, shape, kernel_bits(seed, shape, density, data_type, clustered))
        for i, (seed, shape, density, data_type, clustered) in enumerate(drawn)
        if opset >= 13 or data_type != TensorProto.BFLOAT16
    }
    assume(kernels)
    model = build(kernels, opset, as_constant)
    before = model.SerializeToString()
    given = OnnxModel.from_proto(model)
    dense = ENCODINGS["dense"].encode(given, kernels)
    expected = read_tensors(dense, kernels)
    for name, (_, _, bits) in kernels.items():
        sign = bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
        assert (
            view_bits(expected[name]).tobytes()
            == np.where(bits == sign, 0, bits).astype(bits.dtype).tobytes()
        )
    runs = outputs_of(dense.to_proto(), ort.GraphOptimizationLevel.ORT_ENABLE_BASIC)
    for name in ("sparse", "packed"):
        encoded = ENCODINGS[name].encode(given, list(kernels))
        whole = encoded.to_proto()
        verify_weights(encoded, expected, name)
        verify_weights(OnnxModel.from_proto(whole), expected, name)
        assert whole.ByteSize() <= dense.to_proto().ByteSize()
        restored = to_dense(encoded)
        onnx.checker.check_model(restored.to_proto(), full_check=True)
        for key, array in read_tensors(restored, list(kernels)).items():
            assert view_bits(array).tobytes() == view_bits(expected[key]).tobytes()
        assert outputs_of(whole, ort.GraphOptimizationLevel.ORT_ENABLE_BASIC) == runs
        assert outputs_of(whole, ort.GraphOptimizationLevel.ORT_DISABLE_ALL) == runs
    assert model.SerializeToString() == before


positions = st.integers(1, 5000).flatmap(
    lambda size: st.tuples(
        st.just(size), st.sets(st.integers(0, size - 1), max_size=min(size, 300))
    )
)


@settings(max_examples=200, deadline=None)
@given(positions, st.sampled_from(packed_codec.KINDS))
def test_decode_returns_encoded_positions_for_every_kind(drawn, kind):
    size, where = drawn[0], np.array(sorted(drawn[1]), np.int64)
    values = np.arange(1, where.size + 1, dtype=np.float32)
    gaps = packed_codec.compute_deltas(where)
    (codes,), (stored,) = packed_codec.encode(kind, [gaps], [values], [size])
    unpacked = packed_codec.unpack(kind, packed_codec.pack(kind, codes))[: codes.size]
    assert (unpacked == codes).all()
    dense = packed_codec.decode(kind, unpacked, stored, size)
    assert (np.flatnonzero(dense) == where).all()
    assert (dense[where] == values).all()
    code_bytes, count = packed_codec.estimate_sizes(gaps, size)[kind]
    tolerance = 2 + where.size // 20 if kind == packed_codec.PAIRS else 0
    assert abs(stored.size - count) <= tolerance
    assert abs(packed_codec.pack(kind, codes).nbytes - code_bytes) < 8 + tolerance


@settings(max_examples=150, deadline=None)
@given(positions, st.sampled_from(packed_codec.KINDS), st.data())
def test_decode_of_corrupt_codes_raises_or_returns_array(drawn, kind, data):
    size, where = drawn[0], np.array(sorted(drawn[1]), np.int64)
    gaps, values = packed_codec.compute_deltas(where), np.ones(where.size, np.float32)
    (codes,), (stored,) = packed_codec.encode(kind, [gaps], [values], [size])
    packed = packed_codec.pack(kind, codes).copy()
    if packed.size:
        flat = packed.reshape(-1)
        flat[data.draw(st.integers(0, flat.size - 1))] = data.draw(st.integers(0, 255))
    try:
        dense = packed_codec.decode(
            kind, packed_codec.unpack(kind, packed)[: codes.size], stored, size
        )
    except ValueError:
        return
    assert dense.size == size


@pytest.mark.parametrize("format_", list(ENCODINGS))
def test_write_model_writes_deterministic_bytes(tmp_path, format_):
    bits = kernel_bits(0, (64, 64, 3, 3), 0.1, TensorProto.FLOAT, False)
    model = build({"k": (TensorProto.FLOAT, (64, 64, 3, 3), bits)}, 13, False)
    model.doc_string = "about"
    encoded = write_metadata(
        ENCODINGS[format_].encode(OnnxModel.from_proto(model), ["k"]), format=format_
    )
    write_model(encoded, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == encoded.to_proto().SerializeToString(
        deterministic=True
    )
