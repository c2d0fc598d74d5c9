"""Sparse files are valid ONNX, and corrupt ones are rejected with the name of the tensor."""

from functools import partial

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files.decode import to_dense
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.system import memory
from tests.support.encoded import encode_as, matmul, verify_as
from tests.support.models import sparse_array

encode, verify = partial(encode_as, "sparse"), partial(verify_as, "sparse")


def run(model):
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    value = session.get_inputs()[0]
    x = np.random.default_rng(1).standard_normal(value.shape).astype(np.float32)
    return session.run(None, {"x": x})[0].tobytes()


def test_encode_writes_valid_sparse_initializers():
    array = sparse_array((64, 32), 0.1)
    encoded = encode(matmul(array), ["w"])
    (entry,) = encoded.graph.sparse_initializer
    where = numpy_helper.to_array(entry.indices)
    assert entry.values.name == "w"
    assert entry.indices.name == ""
    assert entry.indices.data_type == TensorProto.INT64
    assert (where == np.flatnonzero(array)).all()
    assert list(entry.dims) == [64, 32]
    assert not encoded.graph.initializer
    onnx.checker.check_model(encoded)
    assert run(encoded) == run(matmul(array))


@pytest.mark.parametrize(("density", "encoded"), [(0.0, 1), (0.3, 1), (0.34, 0), (1.0, 0)])
def test_encode_keeps_dense_unless_smaller(density, encoded):
    array = np.zeros((100, 100), np.float32)
    array.reshape(-1)[: int(density * array.size)] = 1
    assert len(encode(matmul(array), ["w"]).graph.sparse_initializer) == encoded


def test_encode_of_zeros_runs():
    array = np.zeros((64, 32), np.float32)
    assert run(encode(matmul(array), ["w"])) == run(matmul(array))


def test_encode_encodes_only_named_weights():
    model = matmul(sparse_array((64, 32), 0.1))
    assert encode(model, []).SerializeToString() == model.SerializeToString()


def test_encode_turns_constant_node_into_initializer():
    array = sparse_array((64, 32), 0.1)
    encoded = encode(matmul(array, as_constant=True), ["w"])
    assert [node.op_type for node in encoded.graph.node] == ["MatMul"]
    verify(encoded, {"w": array})
    assert run(encoded) == run(matmul(array))


@pytest.mark.parametrize(("ir_version", "opset"), [(3, 8), (4, 9), (8, 13)])
def test_encode_removes_input_of_weight(ir_version, opset):
    array = sparse_array((64, 32), 0.1)
    encoded = encode(matmul(array, ir_version, opset, as_input=True), ["w"])
    assert [value.name for value in encoded.graph.input] == ["x"]
    assert encoded.ir_version == max(6, ir_version)
    verify(encoded, {"w": array})
    assert run(encoded) == run(matmul(array))


def test_encode_keeps_other_weights_of_old_files_constant():
    array = sparse_array((64, 32), 0.1)
    model = matmul(array, 3, 8, as_input=True)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 32), np.float32), "bias"))
    model.graph.input.append(helper.make_tensor_value_info("bias", TensorProto.FLOAT, [1, 32]))
    model.graph.node[0].output[0] = "h"
    model.graph.node.append(helper.make_node("Add", ["h", "bias"], ["y"]))
    onnx.checker.check_model(model)
    assert [value.name for value in encode(model, ["w"]).graph.input] == ["x"]


def test_encode_keeps_weight_that_is_output_dense():
    model = matmul(sparse_array((64, 32), 0.1))
    model.graph.output.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [64, 32]))
    for format_ in ENCODINGS.values():
        encoded = format_.encode(OnnxModel.from_proto(model), ["w"]).to_proto()
        assert [t.name for t in encoded.graph.initializer] == ["w"]


def test_encode_keeps_scalars_and_empty_tensors_dense():
    for array in (np.float32(0), np.zeros((0, 4), np.float32)):
        graph = helper.make_graph(
            [helper.make_node("Identity", ["w"], ["y"])],
            "g",
            [],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, array.shape)],
            [numpy_helper.from_array(np.asarray(array), "w")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        for format_ in ENCODINGS.values():
            assert (
                format_.encode(OnnxModel.from_proto(model), ["w"]).to_proto().SerializeToString()
                == model.SerializeToString()
            )


def test_encode_keeps_doc_strings():
    restored = to_dense(OnnxModel.from_proto(encode(matmul(sparse_array((64, 32), 0.1)), ["w"])))
    assert restored.graph.initializer[0].doc_string == "the weight"


def test_to_dense_reads_coordinates():
    array = sparse_array((64, 32), 0.1)
    encoded = encode(matmul(array), ["w"])
    where = np.stack(np.nonzero(array), axis=1).astype(np.int64)
    encoded.graph.sparse_initializer[0].indices.CopyFrom(numpy_helper.from_array(where))
    onnx.checker.check_model(encoded)
    verify(encoded, {"w": array})


def put(model, array):
    model.graph.sparse_initializer[0].indices.CopyFrom(numpy_helper.from_array(array))


def where_of(model):
    return numpy_helper.to_array(model.graph.sparse_initializer[0].indices).copy()


def changed(model, position, value):
    where = where_of(model)
    where[position] = value
    put(model, where)


DAMAGE = {
    "out of range": lambda m: changed(m, -1, 64 * 32),
    "negative": lambda m: changed(m, 0, -1),
    "unsorted": lambda m: put(m, where_of(m)[::-1].copy()),
    "duplicated": lambda m: changed(m, 1, where_of(m)[0]),
    "too few indices": lambda m: put(m, where_of(m)[:-1]),
    "int32 indices": lambda m: put(m, where_of(m).astype(np.int32)),
    "coordinates out of range": lambda m: put(m, np.full((where_of(m).size, 2), 63)),
    "dims zero": lambda m: m.graph.sparse_initializer[0].dims.__setitem__(0, 0),
    "dims enormous": lambda m: m.graph.sparse_initializer[0].dims.__setitem__(0, 2**60),
    "no dims": lambda m: m.graph.sparse_initializer[0].ClearField("dims"),
    "values cut": lambda m: setattr(m.graph.sparse_initializer[0].values, "raw_data", b"\0" * 7),
    "name taken": lambda m: m.graph.initializer.append(
        numpy_helper.from_array(np.float32([1]), "w")
    ),
    "name twice": lambda m: m.graph.sparse_initializer.append(m.graph.sparse_initializer[0]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_to_dense_of_corrupt_file_names_tensor(damage):
    encoded = encode(matmul(sparse_array((64, 32), 0.1)), ["w"])
    DAMAGE[damage](encoded)
    with pytest.raises(InputError, match="'w"):
        to_dense(OnnxModel.from_proto(encoded))


@pytest.mark.parametrize("damage", ["out of range", "unsorted", "duplicated", "too few indices"])
def test_verify_weights_of_corrupt_file_raises_export_failed(damage):
    encoded = encode(matmul(sparse_array((64, 32), 0.1)), ["w"])
    DAMAGE[damage](encoded)
    with pytest.raises(ExportFailed):
        verify(encoded, {"w": sparse_array((64, 32), 0.1)})


def test_to_dense_without_enough_memory_raises_input_error(monkeypatch):
    encoded = OnnxModel.from_proto(encode(matmul(sparse_array((64, 32), 0.1)), ["w"]))
    monkeypatch.setattr(memory, "available_memory", lambda: 64 * 32 * 4)
    assert to_dense(encoded).weights["w"].size == 64 * 32
    monkeypatch.setattr(memory, "available_memory", lambda: 64 * 32 * 4 - 1)
    with pytest.raises(InputError):
        to_dense(encoded)
