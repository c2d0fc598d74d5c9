from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from benchmarks import coded_values
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files.nonzeros import view_bits
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.system.arrays import Array

SHAPE = (256, 256)


def pack_weight(weight: Array) -> onnx.ModelProto:
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, weight.shape)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])],
        "graph",
        [],
        [output],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return ENCODINGS["packed"].encode(OnnxModel.from_proto(model), ["w"]).to_proto()


def make_weight(seed: int, exponents: list[int]) -> Array:
    """Return a weight whose nonzeros have some exponents, except for a few with random bits."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**23, SHAPE, np.uint32) | rng.integers(0, 2, SHAPE, np.uint32) << 31
    words |= rng.choice(np.array(exponents, np.uint32), SHAPE) << 23
    rare = rng.random(SHAPE) < 0.001
    words[rare] = rng.integers(0, 2**32, SHAPE, np.uint32)[rare]
    weight = np.where(rng.random(SHAPE) < 0.3, words, 0).astype(np.uint32).view(np.float32)
    return np.where(weight == 0, np.float32(0), weight)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 255), min_size=1, max_size=20))
def test_rewrite_model_keeps_every_bit(seed: int, exponents: list[int]) -> None:
    weight = make_weight(seed, exponents)
    rewritten, _ = coded_values.rewrite_model(pack_weight(weight))
    onnx.checker.check_model(rewritten, full_check=True)
    for level in coded_values.LEVELS:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        session = onnxruntime.InferenceSession(
            rewritten.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        [output] = session.run(None, {})
        assert (view_bits(output) == view_bits(weight)).all()


@pytest.mark.parametrize(("num_exponents", "bits"), [(1, 1), (3, 2), (4, 4), (15, 4)])
def test_rewrite_model_chooses_the_fewest_bits(num_exponents: int, bits: int) -> None:
    packed = pack_weight(make_weight(0, list(range(120, 120 + num_exponents))))
    rewritten, all_bits = coded_values.rewrite_model(packed)
    assert all_bits == [bits]
    saved = packed.ByteSize() - rewritten.ByteSize()
    expected = np.count_nonzero(make_weight(0, [120])) * (8 - bits) / 8
    # A few values with random bits are stored raw.
    assert expected - 1.5 * coded_values.NODE_BYTES < saved < expected


def test_compare_files_reports_ratios(tmp_path: Path) -> None:
    path = tmp_path / "packed.onnx"
    onnx.save(pack_weight(make_weight(0, [120, 121])), path)
    row = coded_values.compare_files(path, tmp_path, rounds=1)
    assert row["bits"] == [2]
    assert 2 < row["exponents"] < 40
    assert 0.9 < row["exponent_entropy"] < 1.1
    assert 0.8 < row["coded"] < 1
    assert row["load coded"].keys() == {"load", "load again", "peak memory"}
