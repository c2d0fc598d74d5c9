"""Transformers at full size from torch's exporters: import, gradients, training steps, files that say the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto

from ltp_pipeline.exporters.files.count import count_file_sparsity
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import ExportSettings
from ltp_pipeline.stages import export
from ltp_pipeline.stages.import_model.parity import compare_outputs
from ltp_pipeline.stages.write_back import to_file_weights
from tests.support import transformer_exports
from tests.support.imported import Imported, import_network
from tests.support.models import run_onnxruntime
from tests.support.transformer_exports import CASES, Inputs

STEPS, DENSITY = 3, 0.1


@pytest.fixture
def library() -> Any:
    pytest.importorskip(
        "onnxscript", reason="the networks come from the extra `models`: make test-models"
    )
    return pytest.importorskip(
        "transformers", reason="the networks come from the extra `models`: make test-models"
    )


@pytest.mark.long
@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize("name", CASES)
def test_transformer_export_is_pruned_and_exported(
    name: str, dynamo: bool, library: Any, tmp_path: Path
) -> None:
    model, inputs = transformer_exports.export_network(name, library, dynamo)
    result = goes_all_the_way(model, inputs, tmp_path)
    assert len(result.layer_weights) == CASES[name].kernels


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "opset", "level"), [("bert", 14, 0), ("distilbert", 17, 1), ("roberta", 17, 2)]
)
def test_transformer_optimized_by_onnxruntime_is_pruned(
    name: str, opset: int, level: int, library: Any, tmp_path: Path
) -> None:
    model, inputs = transformer_exports.export_network(
        name, library, False, opset_version=opset, attention="eager"
    )
    model = transformer_exports.optimize_transformer(model, tmp_path, "bert", level)
    result = goes_all_the_way(model, inputs, tmp_path)
    layers = 6 if name == "distilbert" else 12
    assert len(result.layer_weights) == 4 * layers + 2
    assert sum(k.op == "Attention" for k in result.layer_weights) == layers


def goes_all_the_way(model: ModelProto, inputs: Inputs, folder: Path) -> Imported:
    result = import_network(model)
    assert result.parity is not None, result.notes
    assert result.forward.batch_size is None
    learn(result, inputs)
    prune(result)
    kernels = [k.name for k in result.layer_weights]
    feeds = {name: x.numpy() for name, x in inputs.items()}
    weights = to_file_weights(result.network, result.state)
    settings = ExportSettings(formats=("sparse", "packed"))
    files = export.run(
        result.network.file, weights, kernels, settings, RunDirectory(folder / "run"), feeds
    ).files
    with torch.no_grad():
        (ours,) = result(*inputs.values())
    for file in files:
        (theirs,) = run_onnxruntime(str(file.path), feeds)
        assert compare_outputs(ours, theirs).relative <= 1e-4
        counted = count_file_sparsity(file.path, kernels).layers
        assert counted.nonzeros == sum(int(np.count_nonzero(weights[name])) for name in kernels)
    return result


def learn(result: Imported, inputs: Inputs) -> None:
    """A few steps towards other outputs; every kernel has a gradient, and the loss falls.

    Each step is as long as would lower the loss by a twentieth if it were linear, so that none goes
    too far.
    """
    weights = [result.state[name] for name in result.forward.weight_names]
    kernels, losses = {k.name for k in result.layer_weights}, []
    for _ in range(STEPS):
        (y,) = result(*inputs.values(), training=True)
        loss = (y - 1).square().mean()
        gradients = torch.autograd.grad(loss, weights)
        for name, gradient in zip(result.forward.weight_names, gradients, strict=True):
            assert bool(gradient.any()) or name not in kernels, name
        losses.append(float(loss.detach()))
        length = losses[-1] / 20 / sum(float(g.square().sum()) for g in gradients)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.sub_(length * gradient)
    assert losses == sorted(losses, reverse=True)


def prune(result: Imported) -> None:
    """Keep the largest weights of each kernel that may be pruned."""
    with torch.no_grad():
        for kernel in result.network.prunable_weights:
            weight = result.state[kernel.name]
            count = max(int(DENSITY * weight.numel()), 1)
            bound = weight.abs().flatten().kthvalue(weight.numel() - count + 1).values
            weight.mul_(weight.abs() >= bound)
