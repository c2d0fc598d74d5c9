"""Models whose folded BatchNormalization is restored."""

from pathlib import Path

import numpy as np
import torch
from onnx import ModelProto, numpy_helper

import ltp_pipeline
from ltp_pipeline.data.dataset import DatasetSplits, Split
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import PruneSettings, Settings, TrainSettings
from ltp_pipeline.stages.import_model import restore_batch_norm
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.protocol import TaskOutput
from tests.support.imported import Imported
from tests.support.samples import split_of

CPU = torch.device("cpu")


def make_split(*shape: int, count: int = 64, dtype: type = np.float32) -> Split:
    samples = np.random.default_rng(1).standard_normal((count, *shape)).astype(dtype)
    return split_of(samples, np.zeros(count, np.int64))


def import_restored(
    model: ModelProto, data: Split | None = None, kernels: PruneSettings | None = None
) -> Imported:
    network, state = ltp_pipeline.import_model(model, kernels)
    return Imported(*restore_batch_norm.run(network, state, data or make_split(1, 8, 8), 16, CPU))


def run_outputs(network: Imported, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return network(x)[0]


def make_context(network: Network, folder: Path) -> RunContext:
    """Return the context of a run that trains a network on the samples of `split`."""
    data = DatasetSplits(make_split(1, 8, 8), make_split(1, 8, 8), make_split(1, 8, 8), 5, "")
    task = ClassificationTask(TaskOutput(0, "logits", "scores"), num_classes=5)
    return RunContext(
        network, task, data, Settings(train=TrainSettings(batch_size=16)), RunDirectory(folder), CPU
    )


def list_stored(model: ModelProto) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
