"""Measure sizes, writing times and loading times of exported files: `python -m benchmarks.export`.

The networks have the layers of ResNet-50 and MobileNetV2, with BatchNormalization folded. Zeros are
at random places, at 80, 90, 95 and 98 %. Sizes are compared with gzip -6 and zstd -19 of the dense
file (the latter needs the package zstandard) and with the bound of raw values: N·H(p) + 32·nnz bits
for the layer weights, plus the rest of the dense file. Times alternate between formats. The
shortest of several rounds counts, and results are ratios.

Loading and latency are processor time on one thread, which other programs hardly change. "load" is
the first session of a model in a new process. "load again" is a session in a process that has
loaded models before, so that the system provides no new memory. Writing is wall time including the
disk. It compares all three formats, from a dense model to three fsynced files, with one fsynced
file of the dense weights by np.savez or np.save.
"""

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto, helper

from benchmarks.export_networks import OPSET, build_mobilenetv2, build_resnet50
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files.nonzeros import NonzeroIndex
from ltp_pipeline.exporters.files.read_back import verify_weights
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import write_model, write_models

SPARSITIES = (0.80, 0.90, 0.95, 0.98)
NETWORKS = ("resnet50", "mobilenetv2")


def make_pruned_model(
    network: ModelProto, sparsity: float, seed: int
) -> tuple[OnnxModel, dict[str, Any]]:
    """Return a model with random weights and zeros, and its layer weights.

    Args:
        network: Graph of the network.
        sparsity: Fraction of zeros in each layer.
        seed: Seed of weights and zeros.
    """
    rng = np.random.default_rng(seed)
    weights, biases = {}, {}
    for tensor in network.graph.initializer:
        array = rng.standard_normal(tuple(tensor.dims), np.float32) * np.float32(0.05)
        if array.ndim > 1:
            array.reshape(-1)[rng.permutation(array.size)[: round(sparsity * array.size)]] = 0
            weights[tensor.name] = array
        else:
            biases[tensor.name] = array
    return OnnxModel.from_proto(network).with_weights({**weights, **biases}), weights


def lower_bound(weights: dict[str, Any]) -> float:
    """Return the bound of raw values, N·H(p) + 32·nnz bits in bytes, summed over the layers."""
    total = 0.0
    for array in weights.values():
        p = np.count_nonzero(array) / array.size
        entropy = -(p * np.log2(p) + (1 - p) * np.log2(1 - p)) if 0 < p < 1 else 0.0
        total += array.size * entropy / 8 + 4 * np.count_nonzero(array)
    return total


def compare_sizes(
    name: str, model: OnnxModel, weights: dict[str, Any], folder: Path, compressors: bool
) -> dict[str, Any]:
    """Write and verify every format and compare their sizes.

    Args:
        name: Name of the files.
        model: The pruned model.
        weights: Its layer weights.
        folder: Folder for the files.
        compressors: Compress the dense file with gzip and zstd too.
    """
    files = {}
    for format_ in ENCODINGS.values():
        path = folder / f"{name}.{format_.name}.onnx"
        write_model(format_.encode(model, weights), path)
        verify_weights(path, weights, format_.name)
        files[format_.name] = path
    bytes_ = {key: path.stat().st_size for key, path in files.items()}
    nonzeros = sum(int(np.count_nonzero(a)) for a in weights.values())
    rest = bytes_["dense"] - sum(a.nbytes for a in weights.values())
    bound = lower_bound(weights)
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
        result["percent_of_dense"]["gzip -6"] = (
            100 * len(zlib.compress(content, 6, wbits=31)) / len(content)
        )
        compressed = compress_zstd(content)
        result["percent_of_dense"]["zstd -19"] = (
            None if compressed is None else 100 * compressed / len(content)
        )
    return result


def compress_zstd(content: bytes) -> int | None:
    """Return the number of bytes after zstd -19; None without the package zstandard."""
    if not importlib.util.find_spec("zstandard"):
        return None
    import zstandard

    return len(zstandard.ZstdCompressor(level=19).compress(content))


def time_actions(
    actions: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Return the shortest seconds of each action; actions alternate.

    Longer times are due to other programs.

    Args:
        actions: Functions by name.
        rounds: Number of measurements of each action.
        clock: Function that returns seconds.
    """
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            start = clock()
            action()
            times[name].append(clock() - start)
    return {name: min(values) for name, values in times.items()}


def compare_writing(
    model: OnnxModel, weights: dict[str, Any], folder: Path, rounds: int
) -> dict[str, float]:
    """Compare writing all three formats with numpy writing the dense weights once.

    The exporters find nonzeros once, encode, serialize, write and rename three files. np.savez
    writes named arrays into one file with checksums; np.save writes only the bytes. Every file is
    flushed and fsynced, and overwrites that of the round before.

    Args:
        model: The pruned model.
        weights: Its layer weights.
        folder: Folder for the files.
        rounds: Number of measurements.
    """

    def write_arrays(write: Callable[[BinaryIO], object], name: str) -> None:
        with (folder / name).open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())

    def write_formats() -> None:
        scan = NonzeroIndex(model, weights)
        formats = [ENCODINGS[name] for name in ("dense", "sparse", "packed")]
        encoded = (
            (format_.encode(model, scan), folder / f"written.{format_.name}.onnx")
            for format_ in formats
        )
        for writing in write_models(encoded, written=[]).values():
            writing.result()

    def save_arrays(file: BinaryIO) -> None:
        for array in weights.values():
            np.save(file, array)

    actions: dict[str, Callable[[], object]] = {
        "savez": lambda: write_arrays(lambda file: np.savez(file, **weights), "weights.npz"),
        "save": lambda: write_arrays(save_arrays, "weights.npy"),
        "exporters": write_formats,
    }
    wall, processor = (
        time_actions(actions, rounds, time.perf_counter),
        time_actions(actions, rounds),
    )
    ratios = {name: wall["exporters"] / wall[name] for name in ("savez", "save")}
    for name in ("savez", "save"):
        ratios[f"{name}, processor time"] = processor["exporters"] / processor[name]
    return ratios


def make_session(content: Path | bytes) -> ort.InferenceSession:
    """Return a session of one thread with the default optimizations."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    source = content if isinstance(content, bytes) else str(content)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def measure_first_load(path: Path) -> float:
    """Return the processor time of the first session of a model in a new process."""
    command = [sys.executable, "-m", "benchmarks.export", "--first-load", str(path)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_first_load(path: str) -> None:
    """Print the processor time of a session, after that of a tiny model to warm up."""
    value = [helper.make_tensor_value_info(name, 1, [1]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "tiny", value[:1], value[1:]
    )
    tiny = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    make_session(tiny.SerializeToString())
    start = time.process_time()
    make_session(Path(path))
    print(time.process_time() - start)


def compare_running(files: dict[str, Path], rounds: int) -> dict[str, dict[str, float]]:
    """Return the times to load and to run each format, relative to dense.

    Args:
        files: Paths by format.
        rounds: Number of measurements.
    """
    first = {name: list[float]() for name in files}
    for _ in range(rounds):
        for name, path in files.items():
            first[name].append(measure_first_load(path))
    loads = {name: partial(make_session, path) for name, path in files.items()}
    again = time_actions(loads, rounds)
    sessions = {name: make_session(path) for name, path in files.items()}
    x = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
    outputs = {name: s.run(None, {"x": x})[0].tobytes() for name, s in sessions.items()}
    if len(set(outputs.values())) > 1:
        raise SystemExit("the outputs of the formats differ")
    runs = {name: partial(s.run, None, {"x": x}) for name, s in sessions.items()}
    latency = time_actions(runs, 3 * rounds)
    return {
        "load": {name: min(values) / min(first["dense"]) for name, values in first.items()},
        "load again": {name: value / again["dense"] for name, value in again.items()},
        "latency": {name: value / latency["dense"] for name, value in latency.items()},
    }


def measure_networks(quick: bool, seed: int) -> dict[str, Any]:
    """Return the measurements of each network and sparsity."""
    results: dict[str, Any] = {}
    rounds = 5 if quick else 7
    with tempfile.TemporaryDirectory() as scratch:
        for name, build in (
            ("mobilenetv2", build_mobilenetv2),
            ("resnet50", build_resnet50),
        ):
            architecture = build()
            for sparsity in SPARSITIES:
                model, weights = make_pruned_model(architecture, sparsity, seed)
                folder = Path(scratch)
                entry = compare_sizes(name, model, weights, folder, compressors=not quick)
                files = entry.pop("files")
                if not quick or sparsity == 0.9:
                    entry["running_vs_dense"] = compare_running(files, rounds)
                    entry["writing_all_vs_numpy"] = compare_writing(model, weights, folder, rounds)
                results[f"{name} {sparsity:.0%}"] = entry
                print(_format_line(f"{name} {sparsity:.0%}", entry), flush=True)
    return results


def _format_line(name: str, entry: dict[str, Any]) -> str:
    """Return the sizes of a network relative to dense, as text."""
    texts = {
        key: "not measured" if value is None else f"{value:.2f}"
        for key, value in entry["percent_of_dense"].items()
    }
    percents = ", ".join(f"{key} {value}" for key, value in texts.items())
    return f"{name}: % of dense: {percents}"


def summarize_ratios(results: dict[str, Any]) -> dict[str, float]:
    """Return the worst of each ratio that has a limit, over all sparsities."""
    summary: dict[str, float] = {}
    for name in NETWORKS:
        rows = [entry for key, entry in results.items() if key.startswith(name)]
        timed = [entry for entry in rows if "running_vs_dense" in entry]
        running = [entry["running_vs_dense"] for entry in timed]
        writing = [entry["writing_all_vs_numpy"] for entry in timed]
        kernel_ratios = [entry["packed_vs_bound_kernels_only"] for entry in rows]
        sparse_ratios = [entry["sparse_vs_12_bytes_per_nonzero"] for entry in rows]
        values = {
            "packed / bound": [entry["packed_vs_bound"] for entry in rows],
            "packed / bound, kernels only": kernel_ratios,
            "sparse / 12 bytes per nonzero": sparse_ratios,
            "load packed / dense": [times["load"]["packed"] for times in running],
            "load again packed / dense": [times["load again"]["packed"] for times in running],
            "load sparse / dense": [times["load"]["sparse"] for times in running],
            "latency packed / dense": [times["latency"]["packed"] for times in running],
            "latency sparse / dense": [times["latency"]["sparse"] for times in running],
            "write all three / np.savez": [ratios["savez"] for ratios in writing],
            "write all three / np.save": [ratios["save"] for ratios in writing],
        }
        summary |= {f"{name} {key}": max(ratios) for key, ratios in values.items()}
    return summary


def main() -> None:
    """Measure all networks and print the ratios last."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="measure in fewer rounds, times at 90 %% only, without gzip and zstd",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and zeros; default: 0")
    parser.add_argument("--first-load", help=argparse.SUPPRESS)  # for measure_first_load
    options = parser.parse_args()
    if options.first_load:
        print_first_load(options.first_load)
        return
    results = measure_networks(options.quick, options.seed)
    summary = summarize_ratios(results)
    report = {
        "command": "python -m benchmarks.export" + (" --quick" if options.quick else ""),
        "seed": options.seed,
        "machine": {
            "platform": platform.platform(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "versions": {
            "onnx": onnx.__version__,
            "onnxruntime": ort.__version__,
            "numpy": np.__version__,
        },
        "results": results,
        "ratios": summary,
    }
    if not importlib.util.find_spec("zstandard"):
        report["left_out"] = {
            "zstd -19": "the package zstandard is not installed (pip install 'ltp-pipeline[bench]')"
        }
        print(f"zstd -19 is not measured: {report['left_out']['zstd -19']}", file=sys.stderr)
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n")
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        for key, value in summary.items():
            print(f"{key}: {value:.3f}")


if __name__ == "__main__":
    main()
