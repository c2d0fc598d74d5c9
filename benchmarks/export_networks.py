"""Build graphs of ResNet-50 and MobileNetV2 with folded BatchNormalization and without weights."""

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

OPSET = 13


class GraphBuilder:
    """Builds a graph of convolutions whose weights are zero."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.channels = {"x": 3}

    def add_node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node that keeps the channels of its first input, and return its output."""
        output = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        self.channels[output] = self.channels[inputs[0]]
        return output

    def add_conv(
        self, x: str, out: int, size: int, stride: int = 1, depthwise: bool = False
    ) -> str:
        """Add a convolution with a bias and return the name of its output."""
        groups = self.channels[x] if depthwise else 1
        name = f"conv{len(self.nodes)}"
        self.shapes[f"{name}.weight"] = (out, self.channels[x] // groups, size, size)
        self.shapes[f"{name}.bias"] = (out,)
        pads = [size // 2] * 4
        y = self.add_node(
            "Conv",
            x,
            f"{name}.weight",
            f"{name}.bias",
            strides=[stride] * 2,
            pads=pads,
            group=groups,
        )
        self.channels[y] = out
        return y

    def build_model(self, x: str) -> ModelProto:
        """Add the classifier and return the model."""
        self.shapes["fc.weight"], self.shapes["fc.bias"] = (1000, self.channels[x]), (1000,)
        flat = self.add_node("Flatten", self.add_node("GlobalAveragePool", x))
        y = self.add_node("Gemm", flat, "fc.weight", "fc.bias", transB=1)
        tensors = [
            TensorProto(name=name, data_type=1, dims=shape, raw_data=bytes(4 * int(np.prod(shape))))
            for name, shape in self.shapes.items()
        ]
        image = helper.make_tensor_value_info("x", 1, [1, 3, 224, 224])
        scores = helper.make_tensor_value_info(y, 1, [1, 1000])
        graph = helper.make_graph(self.nodes, "network", [image], [scores], tensors)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
        )


def build_resnet50() -> ModelProto:
    """Return a graph with 25.5 million weights in few large layers."""
    net = GraphBuilder()
    x = net.add_node("Relu", net.add_conv("x", 64, 7, 2))
    x = net.add_node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            width, stride = 64 << stage, 2 if stage and not block else 1
            y = net.add_node("Relu", net.add_conv(x, width, 1))
            y = net.add_conv(net.add_node("Relu", net.add_conv(y, width, 3, stride)), 4 * width, 1)
            x = net.add_node(
                "Relu",
                net.add_node("Add", y, x if block else net.add_conv(x, 4 * width, 1, stride)),
            )
    return net.build_model(x)


def build_mobilenetv2() -> ModelProto:
    """Return a graph with 3.5 million weights in many small layers."""
    net = GraphBuilder()
    x = net.add_node("Relu", net.add_conv("x", 32, 3, 2))
    for expand, out, blocks, first in (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    ):
        for block in range(blocks):
            wide = net.channels[x] * expand
            y = net.add_node("Relu", net.add_conv(x, wide, 1)) if expand > 1 else x
            y = net.add_node(
                "Relu", net.add_conv(y, wide, 3, first if not block else 1, depthwise=True)
            )
            y = net.add_conv(y, out, 1)
            x = net.add_node("Add", y, x) if block else y
    return net.build_model(net.add_node("Relu", net.add_conv(x, 1280, 1)))
