"""What importing costs: the graph walk against a native torch module, reading against onnxruntime's own loading.

    python -m benchmarks.import_model [--quick] [--json]

Both networks are ResNet-50 with the same weights; the two modules take turns, on one thread and in processor time, so
that what else the machine does counts little; the median of the rounds' ratios counts. Reading is measured in fresh
processes, because memory that was once used is not given back.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import ModelProto, helper, numpy_helper
from torch import Tensor, nn

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride of the first


class Block(nn.Module):
    """A bottleneck of ResNet-50."""

    def __init__(self, cin: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.short = nn.Conv2d(cin, 4 * width, 1, stride, bias=False) if stride > 1 or cin != 4 * width else None
        self.short_bn = nn.BatchNorm2d(4 * width) if self.short is not None else None

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        if self.short is not None and self.short_bn is not None:
            x = self.short_bn(self.short(x))
        return torch.relu(y + x)


class ResNet50(nn.Module):
    """The native network."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, cin = [], 64
        for width, count, stride in STAGES:
            for i in range(count):
                blocks.append(Block(cin, width, stride if i == 0 else 1))
                cin = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        y = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        scores: Tensor = self.fc(nn.functional.adaptive_avg_pool2d(self.blocks(y), 1).flatten(1))
        return scores


class Writer:
    """Writes the network's layers as ONNX nodes."""

    def __init__(self, network: nn.Module) -> None:
        self.nodes: list[onnx.NodeProto] = []
        tensors = {n: t for n, t in network.state_dict().items() if not n.endswith("num_batches_tracked")}
        self.tensors = [numpy_helper.from_array(t.numpy(), n) for n, t in tensors.items()]

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return its output."""
        output = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def conv_bn(self, x: str, conv: str, bn: str, size: int, stride: int = 1) -> str:
        """Add a convolution and its norm."""
        shape = {"kernel_shape": [size, size], "pads": [size // 2] * 4, "strides": [stride, stride]}
        y = self.add("Conv", x, f"{conv}.weight", **shape)
        names = [f"{bn}.{n}" for n in ("weight", "bias", "running_mean", "running_var")]
        return self.add("BatchNormalization", y, *names, epsilon=1e-5, momentum=0.9)


def as_onnx(network: ResNet50) -> ModelProto:
    """The same network, weights included, as an ONNX model."""
    w = Writer(network)
    y = w.add("Relu", w.conv_bn("x", "conv1", "bn1", 7, 2))
    y = w.add("MaxPool", y, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    for i, block in enumerate(network.blocks):
        assert isinstance(block, Block)  # noqa: S101 - tells mypy what the Sequential holds
        at, stride = f"blocks.{i}", block.conv2.stride[0]
        z = w.add("Relu", w.conv_bn(y, f"{at}.conv1", f"{at}.bn1", 1))
        z = w.add("Relu", w.conv_bn(z, f"{at}.conv2", f"{at}.bn2", 3, stride))
        z = w.conv_bn(z, f"{at}.conv3", f"{at}.bn3", 1)
        if block.short is not None:
            y = w.conv_bn(y, f"{at}.short", f"{at}.short_bn", 1, stride)
        y = w.add("Relu", w.add("Add", z, y))
    y = w.add("Gemm", w.add("Flatten", w.add("GlobalAveragePool", y)), "fc.weight", "fc.bias", transB=1)
    infos = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", ["N", 3, "h", "w"]), (y, ["N", 1000]))]
    graph = helper.make_graph(w.nodes, "resnet50", infos[:1], infos[1:], w.tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def measure_walk(network: ResNet50, model: ModelProto, rounds: int, batch: int, size: int) -> dict[str, float]:
    """Time of forward and backward over the graph divided by that of the native module, in turns."""
    from ltp_pipeline.stages.import_model.graph_module import GraphModule

    walked = GraphModule(model).train()
    network.train()
    x, labels = torch.randn(batch, 3, size, size), torch.arange(batch)

    def step(forward: Callable[[Tensor], Tensor], module: nn.Module) -> float:
        begun = time.process_time()
        nn.functional.cross_entropy(forward(x), labels).backward()
        taken = time.process_time() - begun
        module.zero_grad()
        return taken

    def graph() -> float:
        return step(lambda x: walked(x)[0], walked)

    def native() -> float:
        return step(network, network)

    graph(), native()
    ours, theirs = [], []
    for i in range(rounds):  # each goes first in every other round
        for function, times in ((graph, ours), (native, theirs))[:: 1 if i % 2 else -1]:
            times.append(function())
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return {"graph_s": statistics.median(ours), "native_s": statistics.median(theirs), "walk_ratio": ratio}


_READ = """
import sys, time
import torch, onnxruntime
from pathlib import Path
from ltp_pipeline.config import KernelSettings
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.import_model import graph_module
def memory(what):  # of this process alone; getrusage would count what its parent had before exec
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))
before = memory("VmRSS")
torch.set_num_threads(1)
begun = time.perf_counter()
if sys.argv[2] == "session":
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    kept = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
else:
    kept = import_model.build(import_model.read(sys.argv[1]), KernelSettings())
taken = time.perf_counter() - begun
print(taken, memory("VmHWM") - before)
"""


def measure_reading(path: Path, rounds: int) -> dict[str, float]:
    """Time and peak memory of importing a file without the parity run, beside making a session of it."""
    found: dict[str, list[tuple[float, float]]] = {"session": [], "import": []}
    for _ in range(rounds):
        for what, results in found.items():
            command = [sys.executable, "-c", _READ, str(path), what]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            taken, memory = map(float, done.stdout.split())
            results.append((taken, memory))
    size = path.stat().st_size
    ours, theirs = (min(t for t, _ in found[what]) for what in ("import", "session"))
    memory = max(m for _, m in found["import"])
    return {
        "file_mb": size / 1e6,
        "import_s": ours,
        "session_s": theirs,
        "import_ratio": ours / theirs,
        "memory_ratio": memory / size,
    }


def main() -> None:
    """Measure, print, ratios last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller images, fewer rounds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = ResNet50()
    model = as_onnx(network)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "resnet50.onnx")
        onnx.save(model, path)
        reading = measure_reading(path, 2 if options.quick else 5)
    rounds, batch, size = (5, 4, 64) if options.quick else (11, 8, 128)
    walk = measure_walk(network, model, rounds, batch, size)
    result = {"rounds": rounds, "batch": batch, "image": size, **reading, **walk}
    if options.json:
        print(json.dumps({k: float(np.round(v, 4)) for k, v in result.items()}, indent=2))
        return
    for name, value in result.items():
        if not name.endswith("ratio"):
            print(f"{name:18} {value:.4g}")
    for name, limit in (("import_ratio", 3), ("memory_ratio", 3), ("walk_ratio", 1.03)):
        print(f"{name:18} {result[name]:.3f}  (at most {limit})")


if __name__ == "__main__":
    main()
