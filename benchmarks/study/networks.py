"""The networks and cells of the study, and their dense training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from filelock import FileLock
from onnx import TensorProto, helper

import ltp_pipeline
from benchmarks import datasets
from benchmarks.contexts import train_dense
from benchmarks.small_networks import OPSET, Graph, mlp
from benchmarks.transformer import encoder
from ltp_pipeline.data.open import open_data
from ltp_pipeline.settings.schema import Settings

WEIGHTS = "weights"
MULTIPLY_ADDS = "multiply-adds"
IMAGES = 10_000


def lenet(seed: int = 0) -> onnx.ModelProto:
    """Two convolutions with pooling and two Gemm, without normalization."""
    g = Graph(seed)
    x, channels = "image", 1
    for i, filters in enumerate((16, 32)):
        x = g.conv(x, f"conv{i + 1}", channels, filters, 5)
        x = g.node("MaxPool", [x], f"pool{i + 1}", kernel_shape=[2, 2], strides=[2, 2])
        channels = filters
    x = g.node("Flatten", [x], "flatten")
    x = g.node("Relu", [g.gemm(x, "hidden", 32 * 7 * 7, 120)], "hidden.relu")
    g.gemm(x, "scores", 120, 10)
    return g.model("lenet", (1, 28, 28), 10)


def resnet(seed: int = 0, widths: tuple[int, ...] = (16, 32, 64, 96)) -> onnx.ModelProto:
    """A residual network with BatchNormalization, one block per width, for CIFAR-10."""
    g = Graph(seed)
    x = g.node("Relu", [g.conv_bn("image", "stem", 3, widths[0], 3, 2)], "stem.relu")
    channels = widths[0]
    for i, width in enumerate(widths):
        name = f"block{i + 1}"
        stride = 1 if width == channels else 2
        y = g.conv_bn(x, f"{name}.conv1", channels, width, 3, stride)
        y = g.conv_bn(g.node("Relu", [y], f"{name}.relu1"), f"{name}.conv2", width, width, 3)
        if stride > 1:
            x = g.conv_bn(x, f"{name}.shortcut", channels, width, 1, stride)
        x = g.node("Relu", [g.node("Add", [y, x], f"{name}.add")], f"{name}.relu2")
        channels = width
    g.classifier(x, channels, 10)
    return g.model("resnet", (3, 32, 32), 10)


def inverted(seed: int = 0, squeeze: bool = False) -> onnx.ModelProto:
    """Inverted residuals for CIFAR-10; with `squeeze`, with squeeze-excite and SiLU."""
    g = Graph(seed)

    def activate(x: str, name: str) -> str:
        if not squeeze:
            return g.node("Relu", [x], f"{name}.relu")
        return g.node("Mul", [x, g.node("Sigmoid", [x], f"{name}.sigmoid")], f"{name}.silu")

    x = activate(g.conv_bn("image", "stem", 3, 16, 3, 2), "stem")
    channels = 16
    for i, (width, stride) in enumerate([(16, 1), (24, 2), (24, 1), (40, 2), (40, 1), (56, 1)]):
        name = f"block{i + 1}"
        hidden = 4 * channels
        y = activate(g.conv_bn(x, f"{name}.expand", channels, hidden, 1), f"{name}.expand")
        y = g.conv_bn(y, f"{name}.depthwise", hidden, hidden, 3, stride, group=hidden)
        y = activate(y, f"{name}.depthwise")
        if squeeze:
            y = _squeeze_excite(g, y, name, hidden, channels)
        y = g.conv_bn(y, f"{name}.project", hidden, width, 1)
        is_residual = stride == 1 and width == channels
        x = g.node("Add", [y, x], f"{name}.add") if is_residual else y
        channels = width
    x = activate(g.conv_bn(x, "head", channels, 160, 1), "head")
    g.classifier(x, 160, 10)
    return g.model("squeeze" if squeeze else "mobilenet", (3, 32, 32), 10)


def _squeeze_excite(g: Graph, x: str, name: str, channels: int, reduced: int) -> str:
    """Scale channels by factors computed from their means."""
    y = g.node("GlobalAveragePool", [x], f"{name}.squeeze.pool")
    y = g.conv(y, f"{name}.squeeze.reduce", channels, reduced, 1)
    shape = (channels, reduced, 1, 1)
    weight = g.tensor(f"{name}.squeeze.expand.weight", g.rng.normal(0, reduced**-0.5, shape))
    bias = g.tensor(f"{name}.squeeze.expand.bias", np.zeros(channels))
    y = g.node("Conv", [y, weight, bias], f"{name}.squeeze.expand", kernel_shape=[1, 1])
    return g.node("Mul", [x, g.node("Sigmoid", [y], f"{name}.squeeze.gate")], f"{name}.excited")


def lstm(seed: int = 0, units: int = 96) -> onnx.ModelProto:
    """An LSTM over the rows of an image; its last state is classified."""
    g = Graph(seed)
    x = g.node("Transpose", ["image"], "rows", perm=[1, 0, 2])
    shapes = {"W": (1, 4 * units, 28), "R": (1, 4 * units, units)}
    weights = [
        g.tensor(f"lstm.{key}", g.rng.normal(0, units**-0.5, shape))
        for key, shape in shapes.items()
    ]
    bias = np.zeros((1, 8 * units))
    bias[0, 2 * units : 3 * units] = 1.0  # of the forget gate, so that gradients pass at first
    inputs = [x, *weights, g.tensor("lstm.B", bias)]
    g.nodes.append(
        helper.make_node("LSTM", inputs, ["", "lstm.state"], name="lstm", hidden_size=units)
    )
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [0])
    g.tensors.append(axis)
    x = g.node("Squeeze", ["lstm.state", "axis"], "last")
    g.gemm(x, "scores", units, 10)
    shape = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 28, 28])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(g.nodes, "lstm", [shape], [scores], g.tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


@dataclass(frozen=True)
class StudyNetwork:
    """A network of the study.

    Attributes:
        build: Makes the untrained model from `seed`.
        source: Name of the data.
        cells: Pairs of a kind of cost and the fraction of it that is left.
        dense: Settings of the dense training.
        images: Number of training samples; None for all.
        rates: Learning rates that are tried first.
        is_normalized: Whether BatchNormalization follows layers, so that they have units (R9).
        classes: Number of classes.
    """

    build: Callable[..., onnx.ModelProto]
    source: str
    cells: tuple[tuple[str, float], ...]
    dense: Mapping[str, Any] = field(default_factory=dict)
    images: int | None = IMAGES
    rates: tuple[float, ...] = (0.03, 0.1, 0.3)
    is_normalized: bool = False
    classes: int = 10

    @property
    def has_images(self) -> bool:
        """Whether samples are images, which can be flipped and shifted."""
        return self.source in ("fashion", "cifar") and self.build is not lstm


_BY_WEIGHTS = ((WEIGHTS, 1 / 5), (WEIGHTS, 1 / 20))
_SGD = {"lr": 0.03, "weight_decay": 5e-4, "epochs": 15}


def _normalized(build: Callable[..., onnx.ModelProto]) -> StudyNetwork:
    """Return a network with BatchNormalization for CIFAR-10."""
    cells = (*_BY_WEIGHTS, (MULTIPLY_ADDS, 0.05))
    dense = {"lr": 0.1, "weight_decay": 5e-4, "epochs": 20}
    return StudyNetwork(build, "cifar", cells, dense, is_normalized=True)


NETWORKS = {
    "mlp": StudyNetwork(partial(mlp, (1, 28, 28), (300, 100)), "fashion", _BY_WEIGHTS, _SGD),
    "lenet": StudyNetwork(lenet, "fashion", (*_BY_WEIGHTS, (MULTIPLY_ADDS, 0.1)), _SGD),
    "resnet": _normalized(resnet),
    "mobilenet": _normalized(inverted),
    "squeeze": _normalized(partial(inverted, squeeze=True)),
    "encoder": StudyNetwork(
        partial(
            encoder, 2, 96, 4, datasets.WORD_LENGTH, len(datasets.ALPHABET), len(datasets.LANGUAGES)
        ),
        "words",
        _BY_WEIGHTS,
        {"optimizer": "adamw", "lr": 1e-3, "epochs": 20},
        images=None,
        rates=(3e-4, 1e-3, 3e-3),
        classes=len(datasets.LANGUAGES),
    ),
    "lstm": StudyNetwork(lstm, "fashion", _BY_WEIGHTS, {"lr": 0.1, "epochs": 20}),
}


def dense_model(name: str, seed: int, folders: Mapping[str, Path], cache: Path) -> Path:
    """Return the file of a trained dense network; it is trained if it is not there."""
    network = NETWORKS[name]
    path = cache / f"{name}-{seed}.onnx"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.is_file():
            data = datasets.data_settings(network.source, network.images, folders, cache)
            settings = Settings.model_validate(
                {
                    "data": {**data, "augment": network.source == "cifar"},
                    "train": {"seed": seed, **network.dense},
                }
            )
            compiled, state = ltp_pipeline.import_model(network.build(seed=seed))
            samples = open_data(settings.data, compiled.file.inputs, seed=0)
            accuracy = train_dense(compiled, state, samples, settings, path)
            print(f"dense {name} {seed}: {accuracy}", flush=True)
    return path
