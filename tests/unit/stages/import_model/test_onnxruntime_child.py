"""ONNX files that run in a child process."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ltp_pipeline.stages.import_model import onnxruntime_child
from ltp_pipeline.stages.import_model.onnxruntime_child import LoadFailed, RunFailed, run_model
from ltp_pipeline.system.child_process import ChildCrashed
from tests.support.models import mlp, parsed


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(mlp(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_run_model_returns_arrays_lists_and_none_for_text(tmp_path: Path) -> None:
    text = helper.make_tensor("text", TensorProto.STRING, [1], [b"a"])
    proto = parsed(
        """(float[2] x) => (y, parts, words) {
            y = Neg (x)
            parts = SequenceConstruct (x, y)
            words = Identity (text)
        }""",
        text=text,
    )
    onnx.save(proto, tmp_path / "model.onnx")
    x = np.float32([1, 2])
    y, parts, words = run_model(tmp_path / "model.onnx", {"x": x})
    np.testing.assert_array_equal(y, -x)
    np.testing.assert_array_equal(parts, [x, -x])
    assert words is None


def test_run_model_rejects_a_file_that_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(LoadFailed) as caught:
        run_model(tmp_path / "model.onnx", {})
    assert str(tmp_path) not in str(caught.value)


def test_run_model_rejects_inputs_of_another_shape(model: Path) -> None:
    with pytest.raises(RunFailed):
        run_model(model, {"x": np.zeros((2, 7), np.float32)})
    assert run_model(model, {"x": np.zeros((2, 6), np.float32)})


def test_run_model_starts_another_child_after_a_crash(model: Path) -> None:
    feeds = {"x": np.zeros((2, 6), np.float32)}
    run_model(model, feeds)
    child = onnxruntime_child._child
    assert child is not None
    child.process.kill()
    child.process.wait()
    assert run_model(model, feeds)
    assert onnxruntime_child._child is not child


def test_run_model_raises_if_outputs_are_missing(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Child:
        is_usable = True

        def call(self, *_: object) -> list[int]:
            return [-1]

    monkeypatch.setattr(onnxruntime_child, "_child", Child())
    with pytest.raises(ChildCrashed):
        run_model(model, {})
