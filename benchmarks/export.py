"""How small, how fast to write and how fast to load the exported files are: `python -m benchmarks.export`.

Networks with the kernels of ResNet-50 and MobileNetV2 (a bias per convolution, batch norm folded
away), zeros placed at random at 80, 90, 95 and 98 %. Sizes are beside gzip -6 and zstd -19 of the
dense file (the latter if the package zstandard is installed) and beside the bound: N·H(p) + 32·nnz
bits for the kernels, plus the rest of the dense file as it is. All times are interleaved, the least
of several rounds, and given as ratios.

Loading and latency are processor time on one thread, so that a busy machine does not matter much.
"load" is the first session of a model in a new process; "load again" one in a process that has
loaded models before, whose memory the system need not provide anew. Writing is wall time, disk
included: all three formats, from a dense model and its arrays to three fsynced files, against one
fsynced file of the dense kernels by np.savez or np.save.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto, helper

from benchmarks.export_networks import OPSET, mobilenetv2, resnet50
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files.nonzeros import NonzeroIndex
from ltp_pipeline.exporters.files.read_back import verify_weights
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import write_model, write_models

SPARSITIES = (0.80, 0.90, 0.95, 0.98)
NETWORKS = ("resnet50", "mobilenetv2")


def pruned(network: ModelProto, sparsity: float, seed: int) -> tuple[OnnxModel, dict[str, Any]]:
    """The network with random weights, this share of each kernel zero; and its kernels."""
    rng = np.random.default_rng(seed)
    kernels, biases = {}, {}
    for tensor in network.graph.initializer:
        array = rng.standard_normal(tuple(tensor.dims), np.float32) * np.float32(0.05)
        if array.ndim > 1:
            array.reshape(-1)[rng.permutation(array.size)[: round(sparsity * array.size)]] = 0
            kernels[tensor.name] = array
        else:
            biases[tensor.name] = array
    return OnnxModel.from_proto(network).with_weights({**kernels, **biases}), kernels


def bound_bytes(kernels: dict[str, Any]) -> float:
    """N·H(p) + 32·nnz bits, kernel by kernel."""
    total = 0.0
    for array in kernels.values():
        p = np.count_nonzero(array) / array.size
        entropy = -(p * np.log2(p) + (1 - p) * np.log2(1 - p)) if 0 < p < 1 else 0.0
        total += array.size * entropy / 8 + 4 * np.count_nonzero(array)
    return total


def sizes(
    name: str, model: OnnxModel, kernels: dict[str, Any], folder: Path, compressors: bool
) -> dict[str, Any]:
    """Write every format, prove it, and compare its size."""
    files = {}
    for format_ in ENCODINGS.values():
        path = folder / f"{name}.{format_.name}.onnx"
        write_model(format_.encode(model, kernels), path)
        verify_weights(path, kernels, format_.name)
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
        result["percent_of_dense"]["gzip -6"] = (
            100 * len(zlib.compress(content, 6, wbits=31)) / len(content)
        )
        squeezed = zstd(content)
        result["percent_of_dense"]["zstd -19"] = (
            None if squeezed is None else 100 * squeezed / len(content)
        )
    return result


def zstd(content: bytes) -> int | None:
    """How many bytes zstd -19 makes of this; None without the package."""
    if not importlib.util.find_spec("zstandard"):
        return None
    import zstandard

    return len(zstandard.ZstdCompressor(level=19).compress(content))


def interleaved(
    actions: dict[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """The least time of each action, taken in turns: what is slower is the load that others put on the machine."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            start = clock()
            action()
            times[name].append(clock() - start)
    return {name: min(values) for name, values in times.items()}


def writing(
    model: OnnxModel, kernels: dict[str, Any], folder: Path, rounds: int
) -> dict[str, float]:
    """All three formats against numpy writing the dense kernels once, each file flushed and fsynced.

    Ours is all from a dense model and its arrays to three files: looking for nonzeros (once),
    encoding, serialising, writing, renaming. np.savez writes named arrays into one file with
    checksums, as a model file has names; np.save, into one file again and again, only the bytes.
    Everything overwrites the files of the round before.
    """

    def by_numpy(write: Callable[[BinaryIO], object], name: str) -> None:
        with (folder / name).open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())

    def by_us() -> None:
        scan = NonzeroIndex(model, kernels)
        formats = [ENCODINGS[name] for name in ("dense", "sparse", "packed")]
        encoded = (
            (format_.encode(model, scan), folder / f"written.{format_.name}.onnx")
            for format_ in formats
        )
        for writing in write_models(encoded, written=[]).values():
            writing.result()

    actions: dict[str, Callable[[], object]] = {
        "savez": lambda: by_numpy(lambda file: np.savez(file, **kernels), "weights.npz"),
        "save": lambda: by_numpy(
            lambda file: [np.save(file, a) for a in kernels.values()], "weights.npy"
        ),
        "exporters": by_us,
    }
    wall, processor = interleaved(actions, rounds, time.perf_counter), interleaved(actions, rounds)
    return {name: wall["exporters"] / wall[name] for name in ("savez", "save")} | {
        f"{name}, processor time": processor["exporters"] / processor[name]
        for name in ("savez", "save")
    }


def session(content: Path | bytes) -> ort.InferenceSession:
    """A quiet session with default optimisation, on one thread so that processor time is time."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    source = content if isinstance(content, bytes) else str(content)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def first_load(path: Path) -> float:
    """Processor time to create a process's first session of a model, onnxruntime itself being warm."""
    program = "import sys; from benchmarks import export; export.print_first_load(sys.argv[1])"
    command = [sys.executable, "-c", program, str(path)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_first_load(path: str) -> None:
    """What `first_load` runs: a tiny model first, so that only the memory is new."""
    value = [helper.make_tensor_value_info(name, 1, [1]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "tiny", value[:1], value[1:]
    )
    tiny = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    session(tiny.SerializeToString())
    start = time.process_time()
    session(Path(path))
    print(time.process_time() - start)


def running(files: dict[str, Path], rounds: int) -> dict[str, dict[str, float]]:
    """Session creation, in new processes and again in this one, and latency of each format, relative to dense."""
    first = {name: list[float]() for name in files}
    for _ in range(rounds):
        for name, path in files.items():
            first[name].append(first_load(path))
    again = interleaved(
        {name: lambda path=path: session(path) for name, path in files.items()}, rounds
    )
    open_ = {name: session(path) for name, path in files.items()}
    x = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
    outputs = {name: s.run(None, {"x": x})[0].tobytes() for name, s in open_.items()}
    if len(set(outputs.values())) > 1:
        raise SystemExit("the formats do not give the same output")
    latency = interleaved(
        {name: lambda s=s: s.run(None, {"x": x}) for name, s in open_.items()}, 3 * rounds
    )
    return {
        "load": {name: min(values) / min(first["dense"]) for name, values in first.items()},
        "load again": {name: value / again["dense"] for name, value in again.items()},
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
    shown = {
        key: "not measured" if value is None else f"{value:.2f}"
        for key, value in entry["percent_of_dense"].items()
    }
    shares = ", ".join(f"{key} {value}" for key, value in shown.items())
    return f"{name}: % of dense: {shares}"


def ratios(results: dict[str, Any]) -> dict[str, float]:
    """The figures that have limits, the worst over all points."""
    summary = {}
    for name in NETWORKS:
        rows = [entry for key, entry in results.items() if key.startswith(name)]
        timed = [entry for entry in rows if "running_vs_dense" in entry]
        summary |= {
            f"{name} packed / bound": max(r["packed_vs_bound"] for r in rows),
            f"{name} packed / bound, kernels only": max(
                r["packed_vs_bound_kernels_only"] for r in rows
            ),
            f"{name} sparse / 12 bytes per nonzero": max(
                r["sparse_vs_12_bytes_per_nonzero"] for r in rows
            ),
            f"{name} load packed / dense": max(
                r["running_vs_dense"]["load"]["packed"] for r in timed
            ),
            f"{name} load again packed / dense": max(
                r["running_vs_dense"]["load again"]["packed"] for r in timed
            ),
            f"{name} load sparse / dense": max(
                r["running_vs_dense"]["load"]["sparse"] for r in timed
            ),
            f"{name} latency packed / dense": max(
                r["running_vs_dense"]["latency"]["packed"] for r in timed
            ),
            f"{name} latency sparse / dense": max(
                r["running_vs_dense"]["latency"]["sparse"] for r in timed
            ),
            f"{name} write all three / np.savez": max(
                r["writing_all_vs_numpy"]["savez"] for r in timed
            ),
            f"{name} write all three / np.save": max(
                r["writing_all_vs_numpy"]["save"] for r in timed
            ),
        }
    return summary


def main() -> None:
    """Measure and print; the ratios come last."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer repetitions, times at 90 %% only, no gzip or zstd",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    results = measure(options.quick, options.seed)
    summary = ratios(results)
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
        print(f"zstd -19 left out: {report['left_out']['zstd -19']}", file=sys.stderr)
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n")
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        for key, value in summary.items():
            print(f"{key}: {value:.3f}")


if __name__ == "__main__":
    main()
