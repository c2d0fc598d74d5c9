"""Build small networks as ONNX graphs with random weights, without an exporter.

`resnet`, `mobilenet` and `sequence_cnn` have BatchNormalization; `mlp`, `plain_cnn` and `alexnet`
do not. `resnet` is also the network of the embedded example.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Graph:
    """Collects nodes and He-initialized tensors; methods return the name of the output they add."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(seed)

    def tensor(self, name: str, values: np.ndarray) -> str:
        """Add an initializer."""
        self.tensors.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def node(self, op: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        """Add a node with one output; both have the same name."""
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def conv_bn(
        self,
        x: str,
        name: str,
        channels: int,
        filters: int,
        size: int,
        stride: int = 1,
        group: int = 1,
        axes: int = 2,
    ) -> str:
        """Add Conv without bias and BatchNormalization.

        Args:
            x: Name of the input.
            name: Name of the layer.
            channels: Input channels.
            filters: Output channels.
            size: Size of the filters along each axis.
            stride: Stride along each axis.
            group: Number of groups.
            axes: Number of axes of space or time.
        """
        fan = channels // group * size**axes
        shape = (filters, channels // group, *[size] * axes)
        weight = self.tensor(f"{name}.weight", self.rng.normal(0, np.sqrt(2 / fan), shape))
        settings = {"kernel_shape": [size] * axes, "strides": [stride] * axes, "group": group}
        settings["pads"] = [size // 2] * 2 * axes
        y = self.node("Conv", [x, weight], name, **settings)
        values = (("scale", np.ones), ("bias", np.zeros), ("mean", np.zeros), ("var", np.ones))
        statistics = [self.tensor(f"{name}.bn.{key}", make(filters)) for key, make in values]
        return self.node(
            "BatchNormalization", [y, *statistics], f"{name}.bn", epsilon=1e-5, momentum=0.9
        )

    def conv(self, x: str, name: str, channels: int, filters: int, size: int = 3) -> str:
        """Add Conv with a bias, and Relu."""
        fan = channels * size * size
        weight = self.tensor(
            f"{name}.weight", self.rng.normal(0, np.sqrt(2 / fan), (filters, channels, size, size))
        )
        bias = self.tensor(f"{name}.bias", np.zeros(filters))
        y = self.node(
            "Conv", [x, weight, bias], name, kernel_shape=[size] * 2, pads=[size // 2] * 4
        )
        return self.node("Relu", [y], f"{name}.relu")

    def gemm(self, x: str, name: str, features: int, units: int) -> str:
        """Add Gemm with a bias."""
        weight = self.tensor(
            f"{name}.weight", self.rng.normal(0, np.sqrt(2 / features), (units, features))
        )
        return self.node(
            "Gemm", [x, weight, self.tensor(f"{name}.bias", np.zeros(units))], name, transB=1
        )

    def classifier(self, x: str, channels: int, classes: int) -> str:
        """Add global pooling and a Gemm."""
        x = self.node("Flatten", [self.node("GlobalAveragePool", [x], "pool")], "flatten")
        weight = self.tensor(
            "classifier.weight", self.rng.normal(0, np.sqrt(1 / channels), (classes, channels))
        )
        return self.node(
            "Gemm",
            [x, weight, self.tensor("classifier.bias", np.zeros(classes))],
            "scores",
            transB=1,
        )

    def model(self, name: str, shape: Sequence[int], classes: int) -> onnx.ModelProto:
        """Return the model from `image` to `scores`, with a dynamic batch size."""
        inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", *shape])]
        outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", classes])]
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.tensors)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=8,
            producer_name="ltp-pipeline",
        )


def resnet(
    shape: Sequence[int] = (1, 28, 28),
    classes: int = 10,
    widths: Sequence[int] = (16, 32, 64),
    stem_stride: int = 2,
    seed: int = 0,
) -> onnx.ModelProto:
    """Return a residual network with BatchNormalization and one block per width."""
    g = Graph(seed)
    x = g.node(
        "Relu", [g.conv_bn("image", "stem", shape[0], widths[0], 3, stem_stride)], "stem.relu"
    )
    channels = widths[0]
    for i, width in enumerate(widths):
        name, stride = f"block{i + 1}", 1 if width == channels else 2
        y = g.node(
            "Relu", [g.conv_bn(x, f"{name}.conv1", channels, width, 3, stride)], f"{name}.relu1"
        )
        y = g.conv_bn(y, f"{name}.conv2", width, width, 3)
        if stride > 1:
            x = g.conv_bn(x, f"{name}.shortcut", channels, width, 1, stride)
        x = g.node("Relu", [g.node("Add", [y, x], f"{name}.add")], f"{name}.relu2")
        channels = width
    g.classifier(x, channels, classes)
    return g.model("small-resnet", shape, classes)


def mobilenet(
    shape: Sequence[int] = (1, 28, 28), classes: int = 10, seed: int = 0
) -> onnx.ModelProto:
    """Return a network of inverted residuals in the style of MobileNetV2."""
    g = Graph(seed)
    x = g.node("Relu", [g.conv_bn("image", "stem", shape[0], 16, 3, 2)], "stem.relu")
    channels = 16
    for i, (width, stride) in enumerate([(16, 1), (24, 2), (24, 1), (40, 2), (40, 1)]):
        name, hidden = f"block{i + 1}", 4 * channels
        y = g.node("Relu", [g.conv_bn(x, f"{name}.expand", channels, hidden, 1)], f"{name}.relu1")
        y = g.conv_bn(y, f"{name}.depthwise", hidden, hidden, 3, stride, group=hidden)
        y = g.conv_bn(g.node("Relu", [y], f"{name}.relu2"), f"{name}.project", hidden, width, 1)
        x = g.node("Add", [y, x], f"{name}.add") if stride == 1 and width == channels else y
        channels = width
    x = g.node("Relu", [g.conv_bn(x, "head", channels, 128, 1)], "head.relu")
    g.classifier(x, 128, classes)
    return g.model("small-mobilenet", shape, classes)


def mlp(
    shape: Sequence[int] = (64,),
    hidden: Sequence[int] = (256, 128),
    classes: int = 10,
    seed: int = 0,
) -> onnx.ModelProto:
    """Return a multilayer perceptron: Gemm and Relu alternate."""
    g = Graph(seed)
    x, features = "image", int(np.prod(shape))
    if len(shape) > 1:
        x = g.node("Flatten", [x], "flatten")
    for i, units in enumerate(hidden):
        x = g.node("Relu", [g.gemm(x, f"hidden{i + 1}", features, units)], f"relu{i + 1}")
        features = units
    g.gemm(x, "scores", features, classes)
    return g.model("mlp", shape, classes)


def plain_cnn(
    shape: Sequence[int] = (3, 32, 32),
    widths: Sequence[int] = (32, 64, 64),
    hidden: int | None = None,
    classes: int = 10,
    seed: int = 0,
) -> onnx.ModelProto:
    """Return a network of Conv, Relu and MaxPool; `hidden` adds a Gemm before the classifier."""
    g = Graph(seed)
    x, channels, height, width = "image", *shape
    for i, filters in enumerate(widths):
        x = g.conv(x, f"conv{i + 1}", channels, filters)
        x = g.node("MaxPool", [x], f"pool{i + 1}", kernel_shape=[2, 2], strides=[2, 2])
        channels, height, width = filters, height // 2, width // 2
    features = channels * height * width
    x = g.node("Flatten", [x], "flatten")
    if hidden is not None:
        x = g.node("Relu", [g.gemm(x, "hidden", features, hidden)], "hidden.relu")
        features = hidden
    g.gemm(x, "scores", features, classes)
    return g.model("plain-cnn", shape, classes)


def alexnet(
    shape: Sequence[int] = (3, 32, 32),
    widths: Sequence[int] = (16, 48, 64, 48, 48),
    hidden: int = 192,
    classes: int = 10,
    seed: int = 0,
) -> onnx.ModelProto:
    """Return AlexNet for small images: five Conv, three MaxPool and three Gemm."""
    g = Graph(seed)
    x, channels, height, width = "image", *shape
    for i, filters in enumerate(widths):
        x = g.conv(x, f"conv{i + 1}", channels, filters, 5 if i < 2 else 3)
        channels = filters
        if i in (0, 1, 4):
            x = g.node("MaxPool", [x], f"pool{i + 1}", kernel_shape=[2, 2], strides=[2, 2])
            height, width = height // 2, width // 2
    x, features = g.node("Flatten", [x], "flatten"), channels * height * width
    for i in range(2):
        x, features = (
            g.node("Relu", [g.gemm(x, f"hidden{i + 1}", features, hidden)], f"hidden{i + 1}.relu"),
            hidden,
        )
    g.gemm(x, "scores", features, classes)
    return g.model("small-alexnet", shape, classes)


def sequence_cnn(
    shape: Sequence[int] = (1, 256),
    widths: Sequence[int] = (16, 32, 64, 64),
    classes: int = 10,
    seed: int = 0,
) -> onnx.ModelProto:
    """Return a network of Conv over time with BatchNormalization and strides of two."""
    g = Graph(seed)
    x, channels = "image", shape[0]
    for i, filters in enumerate(widths):
        name = f"conv{i + 1}"
        x = g.node("Relu", [g.conv_bn(x, name, channels, filters, 9, 2, axes=1)], f"{name}.relu")
        channels = filters
    g.classifier(x, channels, classes)
    return g.model("sequence-cnn", shape, classes)
