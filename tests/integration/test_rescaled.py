"""Runs of one function that two files store with weights of different scale."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ltp_pipeline
from ltp_pipeline.results.schema import Report

SETTINGS = {
    "train": {"epochs": 3, "finetune_epochs": 1},
    "budget": {"target_compression": 10},
    "export": {"formats": ["packed"]},
    "baseline": {"mode": "quick"},
}


def rescale_layer(path: Path, layer: str, factor: float) -> None:
    """Multiply the weights in front of a BatchNormalization, and its running statistics."""
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        scales = {f"{layer}.weight": factor, f"{layer}.bn.mean": factor}
        scales[f"{layer}.bn.var"] = factor**2
        if tensor.name in scales:
            array = numpy_helper.to_array(tensor) * np.float32(scales[tensor.name])
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    onnx.save(model, path)


def run_example(folder: Path, out: str) -> Report:
    return ltp_pipeline.run(folder / "model.onnx", out=folder / out, **SETTINGS).report


@pytest.mark.slow
def test_rescaled_layer_gives_the_same_result(example: Path):
    before = run_example(example, "before")
    rescale_layer(example / "model.onnx", "block1.conv1", 16.0)
    rescale_layer(example / "model.onnx", "block3.conv2", 1 / 4)
    after = run_example(example, "after")
    assert before.baseline is not None
    assert after.baseline is not None
    for first, second in zip(before.layers, after.layers, strict=True):
        assert second.baseline_nonzeros == pytest.approx(first.baseline_nonzeros, abs=3)
        assert second.nonzeros == pytest.approx(first.nonzeros, rel=0.1, abs=5)
    assert after.pruned.value == pytest.approx(before.pruned.value, abs=0.02)
    assert after.baseline.value == pytest.approx(before.baseline.value, abs=0.02)


@pytest.mark.slow
def test_file_keeps_the_scale_of_the_original(example: Path):
    rescale_layer(example / "model.onnx", "block1.conv1", 16.0)
    run_example(example, "run")
    sizes = []
    for path in (example / "model.onnx", example / "run" / "model.packed.onnx"):
        ltp_pipeline.unpack(path, example / "plain.onnx")
        tensors = {
            t.name: numpy_helper.to_array(t)
            for t in onnx.load(example / "plain.onnx").graph.initializer
        }
        sizes.append(np.abs(tensors["block1.conv1.weight"]).max())
    assert sizes[1] == pytest.approx(sizes[0], rel=1.0)
