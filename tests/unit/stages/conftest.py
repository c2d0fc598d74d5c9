"""Fixtures of tests of stages."""

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import torch

import ltp_pipeline
from ltp_pipeline.data.open import open_data
from ltp_pipeline.demo import copy_example
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages.import_model import registry
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.protocol import TaskOutput

CPU = torch.device("cpu")


@pytest.fixture
def started(tmp_path: Path) -> tuple[RunContext, StateDict]:
    """Return the context and tensors of the embedded example before training."""
    copy_example(tmp_path / "example")
    network, state = ltp_pipeline.import_model(tmp_path / "example" / "model.onnx")
    settings = Settings.model_validate(
        {"data": {"path": tmp_path / "example" / "digits.npz", "scale": 0.0625}}
    )
    data = open_data(settings.data, network.file.inputs, 0)
    run_directory = RunDirectory(tmp_path / "run")
    run_directory.begin_run({})
    task = ClassificationTask(TaskOutput(0, network.file.outputs[0].name, "scores"), num_classes=10)
    return RunContext(network, task, data, settings, run_directory, CPU), state


@pytest.fixture
def saved(tmp_path):
    def save(model: onnx.ModelProto):
        onnx.save(model, tmp_path / "model.onnx")
        return tmp_path / "model.onnx"

    return save


@pytest.fixture
def capped_relu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make Relu wrong for large values, which the data have and random inputs do not."""
    capped = [
        replace(implementation, function=lambda x: x.clamp(0, 50))
        for implementation in registry._OPS["", "Relu"]
    ]
    monkeypatch.setitem(registry._OPS, ("", "Relu"), capped)
