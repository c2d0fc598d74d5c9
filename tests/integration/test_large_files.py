"""A model over 2 GB, which one protobuf message cannot hold: written, read back and run."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.exporters.files.nonzeros import NonzeroIndex
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import read_model, write_model

SIDE, COUNT = 8000, 9  # 2.3 GB
NAMES = [f"w{i}" for i in range(COUNT)]


def kernel(nth: int) -> np.ndarray:
    """One of the kernels, 2 % of it not zero; made when needed, because all of them twice are too many."""
    rng = np.random.default_rng(nth)
    array = np.zeros(SIDE * SIDE, np.float32)
    array[rng.integers(0, array.size, array.size // 50)] = 0.01 * (nth + 1)
    return array.reshape(SIDE, SIDE)


def large_model() -> OnnxModel:
    nodes = [helper.make_node("MatMul", ["x", name], [f"y.{name}"]) for name in NAMES]
    nodes.append(helper.make_node("Sum", [f"y.{name}" for name in NAMES], ["y"]))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, SIDE]) for name in "xy")
    graph = helper.make_graph(nodes, "large", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    for name in NAMES:
        model.graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=[SIDE, SIDE])
    return OnnxModel(model, {name: kernel(nth) for nth, name in enumerate(NAMES)})


def output(path) -> np.ndarray:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry(
        "session.disable_prepacking", "1"
    )  # which would hold everything twice
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.linspace(-1, 1, SIDE, dtype=np.float32)[None]})[0]


@pytest.mark.long
def test_over_two_gigabytes(tmp_path):
    model = large_model()
    paths = {}
    scan = NonzeroIndex(model, NAMES)
    for format_ in ENCODINGS.values():
        paths[format_.name] = tmp_path / f"model.{format_.name}.onnx"
        write_model(format_.encode(model, scan), paths[format_.name])
    del model, scan
    assert (tmp_path / "model.dense.onnx.data").stat().st_size > 2**31
    assert sum(paths[name].stat().st_size for name in ("sparse", "packed")) < 2**28
    for path in paths.values():
        onnx.checker.check_model(str(path))
        model_read = read_model(path)
        for nth, name in enumerate(NAMES):
            assert np.array_equal(read_tensors(model_read, [name])[name], kernel(nth))
        del model_read
    outputs = [output(path) for path in paths.values()]
    assert outputs[0].any()
    assert all((other == outputs[0]).all() for other in outputs[1:])
