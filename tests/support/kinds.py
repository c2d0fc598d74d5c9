"""A tiny network for each kind of task, with data that it is good at: labels are its own answers, with some noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from ltp_pipeline.data.sequences import RaggedSamples
from tests.support.models import Array, Graph

SAMPLES, FEATURES, HIDDEN = 300, 12, 32
Arrays = Mapping[str, Array]


def write_kind(kind: str, folder: Path) -> tuple[Path, Path]:
    """Write model and data of a kind of task."""
    folder.mkdir(parents=True, exist_ok=True)
    model, data = folder / "model.onnx", folder / "data.npz"
    network, arrays = KINDS[kind](np.random.default_rng(0))
    onnx.save(network, model)
    np.savez(data, **arrays)
    return model, data


def compute_answers(model: onnx.ModelProto, **inputs: Array) -> Array:
    """Return the output of a model on these inputs."""
    outputs: Array = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0]
    return outputs


def _mlp(outputs: int, last: str | None = None, squeezed: bool = False) -> onnx.ModelProto:
    g = Graph()
    g.random("first", FEATURES, HIDDEN, scale=0.4)
    g.random("second", HIDDEN, outputs, scale=0.4)
    hidden = g.add("Relu", g.add("MatMul", "x", "first"))
    y = g.add("MatMul", hidden, "second")
    y = y if last is None else g.add(last, y)
    y = g.add("Squeeze", y, g.tensor("axes", [1], np.int64)) if squeezed else y
    return g.model({"x": ("N", FEATURES)}, [y])


def _features(rng: np.random.Generator) -> Array:
    return rng.standard_normal((SAMPLES, FEATURES)).astype(np.float32)


def regress(rng: np.random.Generator) -> tuple[onnx.ModelProto, Arrays]:
    model, x = _mlp(2), _features(rng)
    y = compute_answers(model, x=x)
    return model, {"x": x, "y": y + 0.05 * rng.standard_normal(y.shape)}


def multilabel(rng: np.random.Generator) -> tuple[onnx.ModelProto, Arrays]:
    model, x = _mlp(4, "Sigmoid"), _features(rng)
    return model, {
        "x": x,
        "y": (compute_answers(model, x=x) + 0.05 * rng.standard_normal((SAMPLES, 4)) > 0.5).astype(
            np.uint8
        ),
    }


def binary(rng: np.random.Generator) -> tuple[onnx.ModelProto, Arrays]:
    model, x = _mlp(1, "Sigmoid"), _features(rng)
    return model, {"x": x, "y": (compute_answers(model, x=x)[:, 0] > 0.5).astype(np.int64)}


def squeezed(rng: np.random.Generator) -> tuple[onnx.ModelProto, Arrays]:
    """Return a model with one Sigmoid output per sample on a single axis, and its data."""
    model, x = _mlp(1, "Sigmoid", squeezed=True), _features(rng)
    return model, {"x": x, "y": (compute_answers(model, x=x) > 0.5).astype(np.int64)}


def one_hot(rng: np.random.Generator) -> tuple[onnx.ModelProto, Arrays]:
    """Return a model and data whose labels are one-hot, as in Keras."""
    model, x = _mlp(4), _features(rng)
    return model, {"x": x, "y": np.eye(4, dtype=np.float32)[compute_answers(model, x=x).argmax(1)]}


def _convolutional(channels: int, last: str | None = None) -> onnx.ModelProto:
    g = Graph()
    g.random("first", 8, 1, 3, 3, scale=0.6)
    g.random("second", channels, 8, 1, 1, scale=0.6)
    y = g.add("Conv", g.add("Relu", g.add("Conv", "x", "first", pads=[1, 1, 1, 1])), "second")
    return g.model({"x": ("N", 1, 8, 8)}, [y if last is None else g.add(last, y)])


def segment(rng: np.random.Generator) -> tuple[onnx.ModelProto, Arrays]:
    model, x = _convolutional(3), rng.standard_normal((SAMPLES, 1, 8, 8)).astype(np.float32)
    return model, {"x": x, "y": compute_answers(model, x=x).argmax(1)}


def masks(rng: np.random.Generator) -> tuple[onnx.ModelProto, Arrays]:
    """Return a model and data with two classes of pixels that differ in one channel."""
    model, x = (
        _convolutional(1, "Sigmoid"),
        rng.standard_normal((SAMPLES, 1, 8, 8)).astype(np.float32),
    )
    return model, {"x": x, "y": (compute_answers(model, x=x)[:, 0] > 0.5).astype(np.uint8)}


def positions(rng: np.random.Generator) -> tuple[onnx.ModelProto, Arrays]:
    """Return a model and data with a class for each token of sequences of different length."""
    g = Graph()
    g.random("table", 40, FEATURES, scale=1.0)
    g.random("first", FEATURES, HIDDEN, scale=0.4)
    g.random("second", HIDDEN, 3, scale=0.4)
    hidden = g.add("Relu", g.add("MatMul", g.add("Gather", "table", "ids"), "first"))
    y = g.add("MatMul", hidden, "second")
    model = g.model({"ids": ("N", "T")}, [y], types={"ids": onnx.TensorProto.INT64})
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 7, SAMPLES))])
    ids = rng.integers(0, 40, offsets[-1])
    padded = RaggedSamples(ids, offsets)
    labels = compute_answers(model, ids=padded.take(np.arange(SAMPLES))).argmax(-1)
    kept = [row[:length] for row, length in zip(labels, np.diff(offsets), strict=True)]
    return model, {
        "ids": ids,
        "ids_offsets": offsets,
        "y": np.concatenate(kept),
        "y_offsets": offsets,
    }


KINDS: Mapping[str, Callable[[np.random.Generator], tuple[onnx.ModelProto, Arrays]]] = {
    "regression": regress,
    "multilabel": multilabel,
    "binary": binary,
    "squeezed": squeezed,
    "one-hot": one_hot,
    "segmentation": segment,
    "masks": masks,
    "positions": positions,
}
