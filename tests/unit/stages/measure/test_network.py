"""Files are held against the network they come from."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.data.open import open_data
from ltp_pipeline.errors import ExportFailed
from ltp_pipeline.results.schema import OriginalResult
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import DataSettings, ExportSettings
from ltp_pipeline.stages import export
from ltp_pipeline.stages.measure import network as validate
from ltp_pipeline.stages.measure.network import MeasuredNetwork, MeasuredOriginal
from ltp_pipeline.stages.measure.session import Session
from ltp_pipeline.stages.write_back import to_file_weights
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.evaluator import Evaluator
from tests.support.imported import Imported, import_network
from tests.support.models import Graph


@pytest.fixture
def silent(tmp_path: Path) -> tuple[Imported, DatasetSplits, MeasuredOriginal]:
    """An imported detector of tiny outputs and BatchNormalization, samples for it, and what files are held against."""
    g = Graph()
    h = g.add("Relu", g.batch_norm(g.conv("x", "conv1", 1, 8), "bn1", 8))
    h = g.batch_norm(g.conv(h, "conv2", 8, 1), "bn2", 1)
    g.add("Sigmoid", g.add("Add", h, g.tensor("far", -17.0)), outputs=("y",))
    onnx.save(g.model({"x": ("N", 1, 8, 8)}, ["y"]), tmp_path / "model.onnx")
    x = np.random.default_rng(0).standard_normal((40, 1, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x_train=x)
    model = import_network(tmp_path / "model.onnx")
    data = open_data(DataSettings(path=tmp_path / "data.npz"), model.file.inputs, 0)
    session = Session(tmp_path / "model.onnx")
    task = DistillationTask.from_graph(model.file.model.graph, [(2, 1, 8, 8)], 2, "values")
    evaluator = Evaluator(task, session.compute_outputs)
    _, scores = evaluator.evaluate_original(session.compute_outputs, data.test)
    return model, data, MeasuredOriginal(OriginalResult(), 0.0, evaluator, scores, session)


def prove(
    silent: tuple[Imported, DatasetSplits, MeasuredOriginal],
    out: Path,
    changed: Mapping[str, torch.Tensor] = {},
) -> MeasuredNetwork:
    """Write files of a network and hold them against the same network, or one with some tensors `changed`."""
    (network, state), data, original = silent
    formats = ExportSettings(formats=("dense", "deploy-dense"))
    kernels = [k.name for k in network.layer_weights]
    feeds = data.test.read_first(2).inputs
    exported = export.run(
        network.file, to_file_weights(network, state), kernels, formats, RunDirectory(out), feeds
    )
    return validate.measure_network(
        exported, network, {**state, **changed}, original, data.test, {}
    )


@pytest.mark.usefixtures("quickly")
def test_files_of_a_network_with_tiny_outputs_are_proven(silent, tmp_path: Path):
    """The deploy graph, whose norms are folded, too."""
    files = prove(silent, tmp_path / "run").result.files
    assert [file.name for file in files] == ["dense", "deploy-dense"]


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("name", ["conv2.weight", "bn2.bias"])
def test_verify_file_of_other_outputs_raises(silent, tmp_path: Path, name: str):
    with pytest.raises(ExportFailed, match=r"model(\.deploy)?\.dense\.onnx"):
        prove(silent, tmp_path / "run", {name: silent[0].state[name] + 20.0})


def test_verify_file_rounding_of_huge_samples_is_noise(tmp_path: Path):
    g = Graph()
    g.add("MatMul", "x", g.tensor("w", [[1], [-1], [-1]]), outputs=["y"])
    onnx.save(g.model({"x": ("N", 3)}, ["y"]), tmp_path / "model.onnx")
    x = np.array([[1.5 * 2.0**64, 2.0**64, 2.0**63]], np.float32)  # all of which cancels
    assert validate._estimate_noise(Session(tmp_path / "model.onnx"), {"x": x}, 0) == 2.0**39
