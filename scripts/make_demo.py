"""Train the embedded example: a small BN ResNet on scikit-learn's digits, built as ONNX and trained by this project.

    python scripts/make_demo.py

writes model.onnx and digits.npz into pipeline/demo. Needs the `dev` extra (scikit-learn).
"""

import io
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

from ltp_pipeline import exporters, import_model
from ltp_pipeline.config import load_settings
from ltp_pipeline.data import open_data
from ltp_pipeline.files import write_bytes
from ltp_pipeline.records import PrunedModel
from ltp_pipeline.stages import export, finetune
from ltp_pipeline.stages.training import Training, pick_device
from ltp_pipeline.workspace import Workspace

DEMO = Path(__file__).resolve().parent.parent / "pipeline" / "demo"
SIZES = {"train": 1197, "val": 200, "test": 400}
WIDTHS = (16, 32, 64)
EPOCHS = 40


class Graph:
    """Collects nodes and He-initialised tensors."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(seed)

    def tensor(self, name: str, values: np.ndarray) -> str:
        self.tensors.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def node(self, op: str, inputs: list[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def conv_bn(self, x: str, name: str, channels: int, filters: int, size: int, stride: int) -> str:
        scale = np.sqrt(2 / (channels * size * size))
        kernel = self.tensor(f"{name}.weight", self.rng.normal(0, scale, (filters, channels, size, size)))
        pads = [size // 2] * 4
        y = self.node("Conv", [x, kernel], name, kernel_shape=[size] * 2, strides=[stride] * 2, pads=pads)
        values = (("scale", np.ones), ("bias", np.zeros), ("mean", np.zeros), ("var", np.ones))
        stats = [self.tensor(f"{name}.bn.{key}", make(filters)) for key, make in values]
        return self.node("BatchNormalization", [y, *stats], f"{name}.bn", epsilon=1e-5, momentum=0.9)

    def block(self, x: str, name: str, channels: int, filters: int, stride: int) -> str:
        y = self.conv_bn(x, f"{name}.conv1", channels, filters, 3, stride)
        y = self.conv_bn(self.node("Relu", [y], f"{name}.relu1"), f"{name}.conv2", filters, filters, 3, 1)
        if stride > 1:
            x = self.conv_bn(x, f"{name}.shortcut", channels, filters, 1, stride)
        return self.node("Relu", [self.node("Add", [y, x], f"{name}.add")], f"{name}.relu2")


def build(seed: int = 0) -> onnx.ModelProto:
    """A ResNet with one block per width, untrained."""
    g = Graph(seed)
    x = g.node("Relu", [g.conv_bn("image", "stem", 1, WIDTHS[0], 3, 1)], "stem.relu")
    channels = WIDTHS[0]
    for i, width in enumerate(WIDTHS):
        x = g.block(x, f"block{i + 1}", channels, width, 1 if width == channels else 2)
        channels = width
    x = g.node("Flatten", [g.node("GlobalAveragePool", [x], "pool")], "flatten")
    weight = g.tensor("classifier.weight", g.rng.normal(0, np.sqrt(1 / channels), (10, channels)))
    g.node("Gemm", [x, weight, g.tensor("classifier.bias", np.zeros(10))], "scores", transB=1)
    inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])]
    graph = helper.make_graph(g.nodes, "digits-resnet", inputs, outputs, g.tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="ltp-demo")


def write_data(path: Path) -> None:
    """Digits in a fixed random order, as unsigned bytes from 0 to 16."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = digits.images[order][:, None].astype(np.uint8)
    labels = digits.target[order].astype(np.uint8)
    arrays, start = {}, 0
    for name, size in SIZES.items():
        arrays[f"x_{name}"], arrays[f"y_{name}"] = images[start : start + size], labels[start : start + size]
        start += size
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_bytes(path, content.getvalue())


def main() -> None:
    """Write the data, train the model, write the model."""
    write_data(DEMO / "digits.npz")
    imported = import_model(build())
    train = {"lr": 0.1, "weight_decay": 5e-4, "batch_size": 64}
    settings = load_settings(None, DEMO / "ltp.toml", options={"train": train})
    data = open_data(settings.data, imported.file.inputs[0], seed=0)
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        workspace = Workspace(Path(scratch))
        workspace.open({})
        training = Training(imported, data, settings.train, workspace, pick_device("cpu"))
        finetune.run(PrunedModel({}, {}, {}), training, EPOCHS)
        print(f"validation {training.accuracy(data.val):.4f}  test {training.accuracy(data.test):.4f}")
    exporters.save(exporters.with_tensors(imported.proto, export.live_arrays(imported)), DEMO / "model.onnx")


if __name__ == "__main__":
    main()
