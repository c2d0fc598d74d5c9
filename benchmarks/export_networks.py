"""Graphs with the kernels of ResNet-50 and MobileNetV2: a bias per convolution, batch norm folded away, no weights."""

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

OPSET = 13


class Network:
    """Builds a graph of convolutions; weights are filled in later."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.channels = {"x": 3}

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """One node; its output has the channels of its first input."""
        output = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        self.channels[output] = self.channels[inputs[0]]
        return output

    def conv(self, x: str, out: int, kernel: int, stride: int = 1, depthwise: bool = False) -> str:
        """A convolution with a bias."""
        groups = self.channels[x] if depthwise else 1
        name = f"conv{len(self.nodes)}"
        self.shapes[f"{name}.weight"] = (out, self.channels[x] // groups, kernel, kernel)
        self.shapes[f"{name}.bias"] = (out,)
        pads = [kernel // 2] * 4
        y = self.add(
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

    def classifier(self, x: str) -> ModelProto:
        """The head and the whole model, all weights zero."""
        self.shapes["fc.weight"], self.shapes["fc.bias"] = (1000, self.channels[x]), (1000,)
        flat = self.add("Flatten", self.add("GlobalAveragePool", x))
        y = self.add("Gemm", flat, "fc.weight", "fc.bias", transB=1)
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


def resnet50() -> ModelProto:
    """25.5 million kernel weights, few and large kernels."""
    net = Network()
    x = net.add("Relu", net.conv("x", 64, 7, 2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            width, stride = 64 << stage, 2 if stage and not block else 1
            y = net.add("Relu", net.conv(x, width, 1))
            y = net.conv(net.add("Relu", net.conv(y, width, 3, stride)), 4 * width, 1)
            x = net.add(
                "Relu", net.add("Add", y, x if block else net.conv(x, 4 * width, 1, stride))
            )
    return net.classifier(x)


def mobilenetv2() -> ModelProto:
    """3.5 million kernel weights, many small kernels."""
    net = Network()
    x = net.add("Relu", net.conv("x", 32, 3, 2))
    for expand, out, blocks, first in (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    ):
        for block in range(blocks):
            wide = net.channels[x] * expand
            y = net.add("Relu", net.conv(x, wide, 1)) if expand > 1 else x
            y = net.add("Relu", net.conv(y, wide, 3, first if not block else 1, depthwise=True))
            y = net.conv(y, out, 1)
            x = net.add("Add", y, x) if block else y
    return net.classifier(net.add("Relu", net.conv(x, 1280, 1)))
