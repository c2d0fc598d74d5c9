"""A file from elsewhere is tried in another process before onnxruntime takes it into this one."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.stages.import_model import read
from ltp_pipeline.stages.import_model.try_out import try_out
from tests.support.models import mlp


def saved(model: ModelProto, folder: Path) -> Path:
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def stops_the_process() -> ModelProto:
    """The lowest integer divided by -1, which onnxruntime computes as it loads the file."""
    model = mlp()
    for name, value in (("lowest", -(2**63)), ("minus_one", -1)):
        model.graph.initializer.append(numpy_helper.from_array(np.array([value]), name))
    model.graph.node.append(helper.make_node("Div", ["lowest", "minus_one"], ["quotient"]))
    model.graph.output.append(helper.make_tensor_value_info("quotient", onnx.TensorProto.INT64, [1]))
    return model


def test_a_file_that_onnxruntime_does_not_survive_is_refused(tmp_path: Path) -> None:
    path = saved(stops_the_process(), tmp_path)
    with pytest.raises(UnsupportedModel, match="onnxruntime crashed on"):
        try_out(read(path), path)


def test_a_file_that_does_not_fit_into_memory_is_refused(tmp_path: Path) -> None:
    model = mlp()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 10**15
    path = saved(model, tmp_path)
    with pytest.raises(UnsupportedModel, match="does not fit into memory"):
        try_out(read(path), path)


def test_what_onnxruntime_refuses_by_itself_is_left_to_it(tmp_path: Path) -> None:
    path = saved(mlp(), tmp_path)
    file = read(path)
    try_out(file, path, {file.inputs[0].name: np.zeros((2, 3), np.float32)})
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.onnx"]
