"""A file in onnxruntime."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper

from ltp_pipeline.errors import ExportFailed, InputError, UnsupportedModel
from ltp_pipeline.stages.measure.session import Session, SparseVsDenseSession
from tests.support.models import masked_tokens, mlp


def test_session_unfit_samples_raise_input_error(tmp_path: Path):
    onnx.save(masked_tokens(vocabulary=12), tmp_path / "model.onnx")
    session = Session(tmp_path / "model.onnx")
    ids = np.full((2, 3), 12)
    with pytest.raises(InputError, match=r"/model\.onnx .*'ids' int64 2×3, .*Gather"):
        session.compute_outputs({"ids": ids, "ids_mask": ids})
    with pytest.raises(InputError, match=r"'ids_mask' float32 2×3: .*tensor"):
        session.compute_outputs({"ids": ids, "ids_mask": ids.astype(np.float32)})


@pytest.mark.parametrize(("apart", "found"), [(0.9e-5, True), (1.1e-4, False)])
def test_sparse_session_differs_by_the_largest_of_all_batches(
    apart: float, found: bool, tmp_path: Path
):
    """By the largest value of all, and not of the batch in which they differ."""
    onnx.save(masked_tokens(), tmp_path / "model.onnx")
    beside = SparseVsDenseSession(Session(tmp_path / "model.onnx"))
    for scale, more in ((10.0, 0.0), (1.0, 10 * apart)):
        beside.dense.compute_outputs = lambda _, scale=scale: [np.array([[scale]])]
        beside.session.compute_outputs = lambda _, scale=scale, more=more: [
            np.array([[scale + more]])
        ]
        beside.compute_outputs({})
    if found:
        assert beside.check_differences() == pytest.approx(apart)
    else:
        with pytest.raises(ExportFailed, match=r"\b0\.00011\b"):
            beside.check_differences()


def saved(model: ModelProto, folder: Path) -> Path:
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def stops_the_process() -> ModelProto:
    """The lowest integer divided by -1, which onnxruntime computes as it loads the file."""
    model = mlp()
    for name, value in (("lowest", -(2**63)), ("minus_one", -1)):
        model.graph.initializer.append(numpy_helper.from_array(np.array([value]), name))
    model.graph.node.append(helper.make_node("Div", ["lowest", "minus_one"], ["quotient"]))
    model.graph.output.append(
        helper.make_tensor_value_info("quotient", onnx.TensorProto.INT64, [1])
    )
    return model


def test_session_crashing_file_raises(tmp_path: Path) -> None:
    path = saved(stops_the_process(), tmp_path)
    with pytest.raises(UnsupportedModel, match=r"\bsignal \d+"):
        Session(path, is_foreign=True)


def test_session_file_larger_than_memory_raises(tmp_path: Path) -> None:
    model = mlp()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 10**15
    path = saved(model, tmp_path)
    with pytest.raises(UnsupportedModel, match=r"'x'.*\[1000000000000000, 6\]"):
        Session(path, is_foreign=True)


def test_session_foreign_file_unfit_samples_raise(tmp_path: Path) -> None:
    path = saved(mlp(), tmp_path)
    session = Session(path, is_foreign=True)
    with pytest.raises(InputError, match=r"/model\.onnx .*'x' float32 2×3"):
        session.compute_outputs({"x": np.zeros((2, 3), np.float32)})
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.onnx"]
