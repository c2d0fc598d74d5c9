"""Compiled graphs: half precision and batch sizes."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from ltp_pipeline.stages.write_back import to_file_weights
from tests.support.imported import compile_model, import_network
from tests.support.models import Graph, mlp, run_onnxruntime
from tests.support.round_trip import check_round_trip


@pytest.mark.parametrize("data_type", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_half_precision_is_trained_in_single_precision(data_type: int) -> None:
    model = mlp()
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        tensor.CopyFrom(helper.make_tensor(tensor.name, data_type, array.shape, array.flatten()))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = data_type
    half = data_type == TensorProto.FLOAT16
    result = check_round_trip(model, tolerance=2e-2) if half else import_network(model)
    tensors = result.state
    assert {t.dtype for t in tensors.values()} == {torch.float32}
    with torch.no_grad():
        tensors["fc1.weight"].add_(1e-6)  # an update that the half type itself would lose
    written = result.file.model.with_weights(to_file_weights(*result)).to_proto()
    assert {t.data_type for t in written.graph.initializer} == {data_type}
    (y,) = result(torch.randn(2, 6).to(torch.float16 if half else torch.bfloat16))
    assert y.dtype == (torch.float16 if half else torch.bfloat16)


@pytest.mark.parametrize("shape", [(1, 32), (1, -1), (-1, 32)])
def test_file_with_a_fixed_batch_runs_on_other_batches(shape: tuple[int, int]):
    g = Graph()
    h = g.add("Reshape", g.conv("x", "conv", 1, 2), g.tensor("shape", shape, np.int64))
    model = g.model(
        {"x": (1, 1, 4, 4)}, [g.add("Gemm", h, g.random("fc", 5, 32), outputs=("y",), transB=1)]
    )
    x = np.random.default_rng(0).standard_normal((3, 1, 4, 4)).astype(np.float32)
    expected = np.concatenate([run_onnxruntime(model, {"x": sample[None]})[0] for sample in x])
    with torch.no_grad():
        (actual,) = compile_model(model)(torch.from_numpy(x))
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_reshape_of_a_table_keeps_its_first_dimension():
    g = Graph()
    table = g.add("Reshape", g.random("table", 8, 4), g.tensor("shape", (1, -1), np.int64))
    model = g.model({"x": (1, 32)}, [g.add("Add", "x", table, outputs=("y",))])
    x = np.ones((2, 32), np.float32)
    (y,) = compile_model(model)(torch.from_numpy(x))
    np.testing.assert_allclose(
        y.detach().numpy(), x + numpy_helper.to_array(model.graph.initializer[0]).reshape(1, -1)
    )
