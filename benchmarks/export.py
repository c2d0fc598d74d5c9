"""How small, how fast to write and how fast to load the exported files are: `python -m benchmarks.export`.

Networks with the kernels of ResNet-50 and MobileNetV2 (a bias per convolution, batch norm folded away), zeros placed at
random at 80, 90, 95 and 98 %. Sizes are beside gzip -6 of the dense file and beside the bound: N·H(p) + 32·nnz bits for
the kernels, plus the rest of the dense file as it is. Loading and latency are processor time on one thread, so that a
busy machine does not matter much; all times are interleaved, the least of several rounds, and given as ratios.
"""

import argparse
import importlib.util
import json
import os
import platform
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto, NodeProto, TensorProto, helper

from ltp_pipeline import exporters

SPARSITIES = (0.80, 0.90, 0.95, 0.98)
NETWORKS = ("resnet50", "mobilenetv2")
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
        y = self.add("Conv", x, f"{name}.weight", f"{name}.bias", strides=[stride] * 2, pads=pads, group=groups)
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
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


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
            x = net.add("Relu", net.add("Add", y, x if block else net.conv(x, 4 * width, 1, stride)))
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


def pruned(model: ModelProto, sparsity: float, seed: int) -> tuple[ModelProto, dict[str, Any]]:
    """The network with random weights, this share of each kernel zero; and its kernels."""
    rng = np.random.default_rng(seed)
    kernels, biases = {}, {}
    for tensor in model.graph.initializer:
        array = rng.standard_normal(tuple(tensor.dims), np.float32) * np.float32(0.05)
        if array.ndim > 1:
            array.reshape(-1)[rng.permutation(array.size)[: round(sparsity * array.size)]] = 0
            kernels[tensor.name] = array
        else:
            biases[tensor.name] = array
    return exporters.with_tensors(model, {**kernels, **biases}), kernels


def bound_bytes(kernels: dict[str, Any]) -> float:
    """N·H(p) + 32·nnz bits, kernel by kernel."""
    total = 0.0
    for array in kernels.values():
        p = np.count_nonzero(array) / array.size
        entropy = -(p * np.log2(p) + (1 - p) * np.log2(1 - p)) if 0 < p < 1 else 0.0
        total += array.size * entropy / 8 + 4 * np.count_nonzero(array)
    return total


def sizes(name: str, model: ModelProto, kernels: dict[str, Any], folder: Path, compressors: bool) -> dict[str, Any]:
    """Write every format, prove it, and compare its size."""
    files = {}
    for format_ in exporters.FORMATS.values():
        path = folder / f"{name}.{format_.file_name}"
        exporters.save(format_.encode(model, kernels), path)
        exporters.verify(path, kernels, format_.name)
        files[format_.name] = path
    bytes_ = {key: path.stat().st_size for key, path in files.items()}
    nonzeros = sum(int(np.count_nonzero(a)) for a in kernels.values())
    rest = bytes_["dense"] - sum(a.nbytes for a in kernels.values())
    bound = bound_bytes(kernels)
    result = {
        "bytes": bytes_,
        "rest_bytes": rest,
        "packed_vs_bound": bytes_["packed"] / (bound + rest),
        "packed_vs_bound_kernels_only": (bytes_["packed"] - rest) / bound,
        "sparse_vs_12_bytes_per_nonzero": bytes_["sparse"] / (12 * nonzeros + rest),
        "percent_of_dense": {key: 100 * size / bytes_["dense"] for key, size in bytes_.items()},
        "files": files,
    }
    result["percent_of_dense"]["bound"] = 100 * (bound + rest) / bytes_["dense"]
    if compressors:
        content = files["dense"].read_bytes()
        result["percent_of_dense"]["gzip -6"] = 100 * len(zlib.compress(content, 6, wbits=31)) / len(content)
        if importlib.util.find_spec("zstandard"):
            import zstandard

            squeezed = zstandard.ZstdCompressor(level=19).compress(content)
            result["percent_of_dense"]["zstd -19"] = 100 * len(squeezed) / len(content)
    return result


def interleaved(
    actions: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """The least time of each action, taken in turns: what is slower is the load that others put on the machine."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            start = clock()
            action()
            times[name].append(clock() - start)
    return {name: min(values) for name, values in times.items()}


def writing(model: ModelProto, kernels: dict[str, Any], folder: Path, rounds: int) -> dict[str, float]:
    """All three formats, encoded and on disk, against numpy writing the dense kernels once, also down to the disk.

    np.savez writes named arrays into one file with checksums, as a model file has names; np.save only the bytes.
    """

    def by_savez() -> None:
        with (folder / "weights.npz").open("wb") as file:
            np.savez(file, **kernels)
            file.flush()
            os.fsync(file.fileno())

    def by_save() -> None:
        with (folder / "weights.npy").open("wb") as file:
            for array in kernels.values():
                np.save(file, array)
            file.flush()
            os.fsync(file.fileno())

    def by_us() -> None:
        for format_ in exporters.FORMATS.values():
            exporters.save(format_.encode(model, kernels), folder / "written.onnx")

    actions = {"savez": by_savez, "save": by_save, "exporters": by_us}
    wall, processor = interleaved(actions, rounds, time.perf_counter), interleaved(actions, rounds)
    return {name: wall["exporters"] / wall[name] for name in ("savez", "save")} | {
        f"{name}, processor time": processor["exporters"] / processor[name] for name in ("savez", "save")
    }


def session(path: Path) -> ort.InferenceSession:
    """A quiet session with default optimisation, on one thread so that processor time is time."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def running(files: dict[str, Path], rounds: int) -> dict[str, dict[str, float]]:
    """Session creation and latency of each format, relative to dense."""
    load = interleaved({name: lambda path=path: session(path) for name, path in files.items()}, rounds)
    open_ = {name: session(path) for name, path in files.items()}
    x = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
    outputs = {name: s.run(None, {"x": x})[0].tobytes() for name, s in open_.items()}
    if len(set(outputs.values())) > 1:
        raise SystemExit("the formats do not give the same output")
    latency = interleaved({name: lambda s=s: s.run(None, {"x": x}) for name, s in open_.items()}, 3 * rounds)
    return {
        "load": {name: value / load["dense"] for name, value in load.items()},
        "latency": {name: value / latency["dense"] for name, value in latency.items()},
    }


def measure(quick: bool, seed: int) -> dict[str, Any]:
    """Everything, as a table of results."""
    results: dict[str, Any] = {}
    rounds = 5 if quick else 7
    with tempfile.TemporaryDirectory() as scratch:
        for name, build in (("mobilenetv2", mobilenetv2), ("resnet50", resnet50)):
            architecture = build()
            for sparsity in SPARSITIES:
                model, kernels = pruned(architecture, sparsity, seed)
                entry = sizes(name, model, kernels, Path(scratch), compressors=not quick)
                files = entry.pop("files")
                if not quick or sparsity == 0.9:
                    entry["running_vs_dense"] = running(files, rounds)
                    entry["writing_all_vs_numpy"] = writing(model, kernels, Path(scratch), rounds)
                results[f"{name} {sparsity:.0%}"] = entry
                print(_line(f"{name} {sparsity:.0%}", entry), flush=True)
    return results


def _line(name: str, entry: dict[str, Any]) -> str:
    shares = ", ".join(f"{key} {value:.2f}" for key, value in entry["percent_of_dense"].items())
    return f"{name}: % of dense: {shares}"


def ratios(results: dict[str, Any]) -> dict[str, float]:
    """The figures that have limits, the worst over all points."""
    summary = {}
    for name in NETWORKS:
        rows = [entry for key, entry in results.items() if key.startswith(name)]
        timed = [entry for entry in rows if "running_vs_dense" in entry]
        summary |= {
            f"{name} packed / bound": max(r["packed_vs_bound"] for r in rows),
            f"{name} packed / bound, kernels only": max(r["packed_vs_bound_kernels_only"] for r in rows),
            f"{name} sparse / 12 bytes per nonzero": max(r["sparse_vs_12_bytes_per_nonzero"] for r in rows),
            f"{name} load packed / dense": max(r["running_vs_dense"]["load"]["packed"] for r in timed),
            f"{name} load sparse / dense": max(r["running_vs_dense"]["load"]["sparse"] for r in timed),
            f"{name} latency packed / dense": max(r["running_vs_dense"]["latency"]["packed"] for r in timed),
            f"{name} latency sparse / dense": max(r["running_vs_dense"]["latency"]["sparse"] for r in timed),
            f"{name} write all three / np.savez": max(r["writing_all_vs_numpy"]["savez"] for r in timed),
            f"{name} write all three / np.save": max(r["writing_all_vs_numpy"]["save"] for r in timed),
        }
    return summary


def main() -> None:
    """Measure and print; the ratios come last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, times at 90 %% only, no gzip")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    results = measure(options.quick, options.seed)
    if not importlib.util.find_spec("zstandard"):
        print("zstd -19 left out: the package zstandard is not installed")
    summary = ratios(results)
    report = {
        "command": "python -m benchmarks.export" + (" --quick" if options.quick else ""),
        "seed": options.seed,
        "machine": {"platform": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()},
        "versions": {"onnx": onnx.__version__, "onnxruntime": ort.__version__, "numpy": np.__version__},
        "results": results,
        "ratios": summary,
    }
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n")
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        for key, value in summary.items():
            print(f"{key}: {value:.3f}")


if __name__ == "__main__":
    main()
