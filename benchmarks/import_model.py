"""Compare an imported graph with a native torch module, and importing with onnxruntime.

    python -m benchmarks.import_model [--quick] [--json]

Both networks are ResNet-50 with the same weights. They alternate on one thread, in processor time,
which other programs hardly change. The median of the ratios of all rounds counts. Importing is
measured in new processes, because a process does not give back all of its memory.
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

from benchmarks import programs
from benchmarks.networks import ResNet50, as_onnx


def compare_training(
    network: ResNet50, model: ModelProto, rounds: int, batch: int, size: int
) -> dict[str, float]:
    """Compare forward and backward passes of the imported graph and of the native module.

    Args:
        network: The native module.
        model: Its ONNX model.
        rounds: Number of measurements.
        batch: Number of images.
        size: Height and width of images.
    """
    from ltp_pipeline.graph.model import OnnxModel
    from ltp_pipeline.stages.import_model.network import compile_graph

    forward, state = compile_graph(OnnxModel.from_proto(model))
    weights = [state[name].requires_grad_() for name in forward.weight_names]
    network.train()
    x, labels = torch.randn(batch, 3, size, size), torch.arange(batch)

    def time_step(scores: Callable[[Tensor], Tensor], parameters: Iterable[Tensor]) -> float:
        begin = time.process_time()
        loss = nn.functional.cross_entropy(scores(x), labels)
        torch.autograd.backward(loss)
        seconds = time.process_time() - begin
        for tensor in parameters:
            tensor.grad = None
        return seconds

    def time_graph() -> float:
        return time_step(lambda x: forward({"image": x}, state, training=True)[0], weights)

    def time_native() -> float:
        return time_step(network, network.parameters())

    time_graph(), time_native()
    graph_times: list[float] = []
    native_times: list[float] = []
    steps = ((time_graph, graph_times), (time_native, native_times))
    for i in range(rounds):  # each is first in every other round
        for function, times in steps[:: 1 if i % 2 else -1]:
            times.append(function())
    ratios = (a / b for a, b in zip(graph_times, native_times, strict=True))
    return {
        "graph_s": statistics.median(graph_times),
        "native_s": statistics.median(native_times),
        "walk_ratio": statistics.median(ratios),
    }


def compare_opening(path: Path, rounds: int) -> dict[str, float]:
    """Compare time and peak memory of importing a file with those of making a session of it."""
    results: dict[str, list[tuple[float, float]]] = {"session": [], "import": []}
    for _ in range(rounds):
        for action, measurements in results.items():
            command = [sys.executable, str(programs.FOLDER / "open_model.py"), str(path), action]
            process = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds, memory = map(float, process.stdout.split())
            measurements.append((seconds, memory))
    size = path.stat().st_size
    import_seconds = min(seconds for seconds, _ in results["import"])
    session_seconds = min(seconds for seconds, _ in results["session"])
    memory = max(memory for _, memory in results["import"])
    return {
        "file_mb": size / 1e6,
        "import_s": import_seconds,
        "session_s": session_seconds,
        "import_ratio": import_seconds / session_seconds,
        "memory_ratio": memory / size,
    }


def main() -> None:
    """Measure both comparisons and print the ratios last."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="measure smaller images in fewer rounds"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = ResNet50()
    model = as_onnx(network)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "resnet50.onnx")
        onnx.save(model, path)
        opening = compare_opening(path, 2 if options.quick else 5)
    rounds, batch, size = (5, 4, 64) if options.quick else (11, 8, 128)
    training = compare_training(network, model, rounds, batch, size)
    result = {"rounds": rounds, "batch": batch, "image": size, **opening, **training}
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
