"""What importing costs: the graph walk against a native torch module, reading against onnxruntime's own loading.

    python -m benchmarks.import_model [--quick] [--json]

Both networks are ResNet-50 with the same weights; the two modules take turns, on one thread and in
processor time, so that what else the machine does counts little; the median of the rounds' ratios
counts. Reading is measured in fresh processes, because memory that was once used is not given back.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import ModelProto
from torch import Tensor, nn

from benchmarks.networks import ResNet50, as_onnx


def measure_walk(
    network: ResNet50, model: ModelProto, rounds: int, batch: int, size: int
) -> dict[str, float]:
    """Time of forward and backward over the graph divided by that of the native module, in turns."""
    from ltp_pipeline.graph.model import OnnxModel
    from ltp_pipeline.stages.import_model.network import compile_graph

    forward, state = compile_graph(OnnxModel.from_proto(model))
    weights = [state[name].requires_grad_() for name in forward.weight_names]
    network.train()
    x, labels = torch.randn(batch, 3, size, size), torch.arange(batch)

    def step(scores: Callable[[Tensor], Tensor], trained: Iterable[Tensor]) -> float:
        begun = time.process_time()
        nn.functional.cross_entropy(scores(x), labels).backward()
        taken = time.process_time() - begun
        for tensor in trained:
            tensor.grad = None
        return taken

    def graph() -> float:
        return step(lambda x: forward({"image": x}, state, training=True)[0], weights)

    def native() -> float:
        return step(network, network.parameters())

    graph(), native()
    ours, theirs = [], []
    for i in range(rounds):  # each goes first in every other round
        for function, times in ((graph, ours), (native, theirs))[:: 1 if i % 2 else -1]:
            times.append(function())
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return {
        "graph_s": statistics.median(ours),
        "native_s": statistics.median(theirs),
        "walk_ratio": ratio,
    }


_READ = """
import sys, time
import torch, onnxruntime
from pathlib import Path
from ltp_pipeline.settings.schema import PruneSettings
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.import_model import network
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
    kept = import_model.build(import_model.read(sys.argv[1]), PruneSettings())
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
