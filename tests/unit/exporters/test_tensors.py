"""Tensors are read and put back, bit for bit."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from ltp_pipeline import exporters
from ltp_pipeline.errors import ExportFailed, InputError
from tests.support.encoded import described
from tests.support.models import sparse_array


def test_tensors_are_put_back_and_nothing_else_changes():
    model = described(sparse_array())
    new = np.ones((64, 64))
    copy = exporters.with_tensors(model, {"w": new})
    assert copy.graph.initializer[0].data_type == TensorProto.FLOAT
    assert (exporters.read_tensors(copy, ["w"])["w"] == 1).all()
    back = exporters.with_tensors(copy, {"w": sparse_array()})
    assert back.SerializeToString() == model.SerializeToString()


def test_tensors_stored_as_numbers_and_in_nested_places():
    model = described(sparse_array())
    model.graph.initializer[0].CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, [64, 64], sparse_array().ravel()))
    copy = exporters.with_tensors(model, {"w": sparse_array() * 2})
    assert not copy.graph.initializer[0].float_data
    assert (exporters.read_tensors(copy, ["w"])["w"] == sparse_array() * 2).all()
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.zeros(3, np.float32)))
    model.graph.node.insert(0, constant)
    copy = exporters.with_tensors(model, {"c": np.arange(3)})
    assert exporters.read_tensors(copy, ["c"])["c"].tolist() == [0, 1, 2]
    assert exporters.read_tensors(model, ["c"])["c"].tolist() == [0, 0, 0]


def test_half_precision_is_kept():
    model = described(sparse_array())
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(sparse_array().astype(np.float16), "w"))
    copy = exporters.with_tensors(model, {"w": sparse_array()})
    assert exporters.read_tensors(copy, ["w"])["w"].dtype == np.float16


def test_unknown_names_and_wrong_shapes_are_refused():
    with pytest.raises(ExportFailed, match="'v'"):
        exporters.with_tensors(described(sparse_array()), {"v": sparse_array()})
    with pytest.raises(ExportFailed, match="shape"):
        exporters.with_tensors(described(sparse_array()), {"w": sparse_array((4, 4))})
    with pytest.raises(InputError, match="'v'"):
        exporters.read_tensors(described(sparse_array()), ["v"])


def test_negative_zero_becomes_zero_in_kernels_only():
    array = np.full((64, 64), -0.0, np.float32)
    array[0, 0] = 1
    model = described(array)
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.float32([-0.0]), "other"))
    for format_ in exporters.ENCODINGS.values():
        found = exporters.read_tensors(format_.encode(model, ["w"]), ["w", "other"])
        assert not np.signbit(found["w"]).any()
        assert np.signbit(found["other"]).all()
    assert np.signbit(exporters.read_tensors(model, ["w"])["w"]).any()


def test_a_tensor_that_does_not_fit_its_dims_is_named():
    model = described(sparse_array())
    model.graph.initializer[0].raw_data = b"\0" * 10
    with pytest.raises(InputError, match="'w'"):
        exporters.read_tensors(model, ["w"])
    with pytest.raises(InputError, match="'w'"):
        exporters.ENCODINGS["sparse"].encode(model, ["w"])
