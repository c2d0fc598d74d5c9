"""Packed files are read back, and edited files are rejected."""

from functools import partial

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.exporters.encodings import packed
from ltp_pipeline.exporters.files import decode, run_proof
from ltp_pipeline.graph.model import OnnxModel
from tests.support.encoded import encode_as, force_code, model_and_kernels, to_dense, verify_as

encode, verify = partial(encode_as, "packed"), partial(verify_as, "packed")


def test_to_dense_of_plain_model_returns_it():
    model = OnnxModel.from_proto(model_and_kernels()[0])
    assert decode.to_dense(model) is model


def test_to_dense_removes_all_decoding_nodes():
    model, kernels = model_and_kernels()
    restored = to_dense(encode(model, kernels))
    assert [n.SerializeToString() for n in restored.graph.node] == [
        n.SerializeToString() for n in model.graph.node
    ]
    assert {t.name for t in restored.graph.initializer} == set(kernels)


def part(model, suffix):
    return next(t for t in model.graph.initializer if t.name.endswith(suffix))


def replace(tensor, array):
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def node_of(model, op_type):
    return next(n for n in model.graph.node if n.op_type == op_type)


EDITS = {
    "gaps past the end": lambda m: replace(
        part(m, "/8v"), np.full(part(m, "/8v").dims, 255, np.uint8)
    ),
    "duplicated positions": lambda m: replace(
        part(m, "/8v"), np.zeros(part(m, "/8v").dims, np.uint8)
    ),
    "codes of another type": lambda m: replace(
        part(m, "/8v"), np.zeros(part(m, "/8v").dims, np.uint16)
    ),
    "codes missing": lambda m: replace(part(m, "/8v"), np.ones(3, np.uint8)),
    "values missing": lambda m: replace(part(m, "/v.1"), np.ones(3, np.float32)),
    "values of another type": lambda m: replace(
        part(m, "/v.1"), np.ones(part(m, "/v.1").dims, np.float64)
    ),
    "values gone": lambda m: m.graph.initializer.remove(part(m, "/v.0")),
    "values truncated": lambda m: setattr(part(m, "/v.0"), "raw_data", b"\0" * 6),
    "split sizes": lambda m: replace(
        part(m, "/n"), numpy_helper.to_array(part(m, "/n"))[::-1].copy()
    ),
    "negative split size": lambda m: replace(part(m, "/n"), np.array([-5, 9], np.int64)),
    "one split size": lambda m: replace(part(m, "/n"), np.array([5], np.int64)),
    "enormous dims": lambda m: replace(part(m, "/s33.17.3.3"), np.array([2**40, 2**40], np.int64)),
    "negative dims": lambda m: replace(part(m, "/s33.17.3.3"), np.array([-1, 17, 3, 3], np.int64)),
    "more dims than arrays have": lambda m: replace(part(m, "/s33.17.3.3"), np.ones(100, np.int64)),
    "dims that are no dims": lambda m: replace(part(m, "/s33.17.3.3"), np.float32([1])),
    "another axis": lambda m: replace(part(m, "/k7/0"), np.array(1)),
    "another op": lambda m: setattr(node_of(m, "CumSum"), "op_type", "Add"),
    "another attribute": lambda m: node_of(m, "CumSum").attribute.append(
        helper.make_attribute("reverse", 1)
    ),
    "another input": lambda m: node_of(m, "ScatterElements").input.__setitem__(2, "ltp/0/v.1"),
    "a node gone": lambda m: m.graph.node.remove(node_of(m, "CumSum")),
    "the last node gone": lambda m: m.graph.node.remove(node_of(m, "Reshape")),
    "the same name twice": lambda m: node_of(m, "Reshape").output.__setitem__(0, "b.weight"),
    "a constant gone": lambda m: m.graph.initializer.remove(part(m, "/k7/0")),
}


JOINED_EDITS = {
    "sizes of the tensors": lambda m: replace(
        part(m, "/z.0"), numpy_helper.to_array(part(m, "/z.0"))[::-1].copy()
    ),
    "a tensor less": lambda m: node_of(m, "Split").output.pop(),
    "tensors exchanged": lambda m: node_of(m, "Reshape").input.__setitem__(0, "ltp/0/y.0.1"),
    "dims that do not fill it": lambda m: replace(part(m, "/s33.17.3.3"), np.array([33, 17, 3, 2])),
    "values missing": lambda m: replace(part(m, "/v.0"), np.ones(3, np.float32)),
}


@pytest.mark.parametrize("edit", [*EDITS, *(f"joined: {edit}" for edit in JOINED_EDITS)])
def test_to_dense_of_edited_file_raises_input_error(monkeypatch, edit):
    model, kernels = model_and_kernels()
    force_code(monkeypatch, "8v")
    if edit in EDITS:
        monkeypatch.setattr(packed, "SMALL_TENSOR", 0)
    encoded = encode(model, kernels)
    (EDITS | {f"joined: {name}": change for name, change in JOINED_EDITS.items()})[edit](encoded)
    with pytest.raises(InputError, match=r"weight|ltp/0"):
        to_dense(encoded)
    with pytest.raises(ExportFailed):
        verify(encoded, kernels)


def test_to_dense_accepts_neutral_changes():
    model, kernels = model_and_kernels()
    encoded = encode(model, kernels)
    for node in encoded.graph.node:
        node.name = f"renamed {node.output[0]}"
        if node.op_type == "Reshape":
            node.attribute.append(helper.make_attribute("allowzero", 0))
    verify(onnx.version_converter.convert_version(encoded, 14), kernels)


def test_verify_outputs_accepts_constant_shared_with_decoder(tmp_path):
    """onnxruntime merges equal constants; here the model reads a -1 of the decoder already."""
    model, kernels = model_and_kernels(density=0.5)
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), "all"))
    model.graph.node.append(helper.make_node("Reshape", ["y", "all"], ["flat"], name="flatten"))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("flat", TensorProto.FLOAT, [None]))
    path, plain = tmp_path / "packed.onnx", tmp_path / "dense.onnx"
    onnx.save(model, plain)
    encoded = encode(model, kernels)
    (reader,) = (n for n in encoded.graph.node if n.name == "flatten")
    reader.input[1] = "ltp/flat"
    onnx.save(encoded, path)
    feeds = {
        "x": np.random.default_rng(0)
        .normal(size=(1, kernels["a.weight"].shape[1], 8, 8))
        .astype(np.float32)
    }
    run_proof.verify_outputs(path, feeds, run_proof.run_file(plain, feeds))
