"""How fast sparse kernels are: `python -m benchmarks.kernels`.

ResNet-50 and MobileNetV2 with 224 pixels and an encoder of BERT's width with 128 tokens; weights by
seed, zeros at random places: the same share of every kernel, of single weights or of blocks of four
output channels. Each is timed beside the dense network in the same process, in turns; the ratio of
the medians counts, and that of the shortest times stands beside it. On one thread it is processor
time, so that what else the machine does counts little; several threads are timed in five processes,
and the middle one counts. Networks that were really pruned are in benchmarks/kernels_pruned.py. The
processor and the path stand beside the ratios, because they decide.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.int8 import inputs, named, network
from ltp_pipeline.exporters.graphs import deploy
from ltp_pipeline.exporters.sparse_ops import library
from ltp_pipeline.exporters.sparse_ops.replace import convert_to_sparse_ops
from ltp_pipeline.graph.layer_weights import find_layer_weights
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import get_attribute
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.stages.report.environment import find_processor
from ltp_pipeline.system.arrays import Array

ROUNDS = 25
SESSIONS = 3
PROCESSES = (
    5  # for several threads: where the system puts them differs from one process to the next
)
# Share of the processors at other work up to which the times of several threads mean something
IDLE = 0.1
POINTWISE_ONLY = "mobilenetv2"


_SESSION = """
import sys, onnxruntime
def memory():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
before, options = memory(), onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
if sys.argv[2]:
    options.register_custom_ops_library(sys.argv[2])
kept = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
print(memory() - before)
"""


@dataclass(frozen=True)
class Plan:
    """A network, how it is pruned, and on which path it runs."""

    network: str
    sparsities: tuple[float, ...]
    block: int = 1
    path: str = ""  # the best one
    threads: int = 1
    batch: int = 1

    @property
    def name(self) -> str:
        """As it stands before a ratio."""
        parts = [self.network, "4x1" if self.block > 1 else "", self.path]
        parts += [
            f"{self.threads} threads" if self.threads > 1 else "",
            f"batch {self.batch}" if self.batch > 1 else "",
        ]
        return " ".join(filter(None, parts))


FOUR = (0.8, 0.9, 0.95, 0.98)
PLANS = [
    Plan("resnet50", FOUR),
    Plan("resnet50", FOUR, block=4),
    Plan("resnet50", FOUR, path="avx2"),
    Plan("resnet50", FOUR, block=4, path="avx2"),
    Plan("mobilenetv2", (0.9,)),
    Plan("encoder", (0.9,)),
    Plan("resnet50", (0.9,), batch=8),
    Plan("resnet50", (0.9,), threads=2),
]
QUICK = [Plan("mobilenetv2", (0.9,))]


def deployed(name: str) -> tuple[OnnxModel, list[str]]:
    """A network with its norms folded, and the kernels that are pruned."""
    model = OnnxModel.from_proto(network(name))
    kernels = [kernel.name for kernel in find_layer_weights(model)]
    model, _ = deploy.rewrite_model(model, kernels)
    if name == POINTWISE_ONLY:
        kernels = [
            k
            for k in kernels
            if model.get_array(k).ndim == 2 or model.get_array(k).shape[2:] == (1, 1)
        ]
    return model, kernels


def output_axes(model: OnnxModel) -> dict[str, int]:
    """The axis of each kernel that has one entry for each output."""
    result = {}
    for node in model.graph.node:
        if node.op_type == "MatMul" or (
            node.op_type == "Gemm" and not get_attribute(node, "transB", 0)
        ):
            result[node.input[1]] = 1
    return result


def pruned(model: OnnxModel, kernels: list[str], sparsity: float, block: int) -> OnnxModel:
    """Zeros at random places, the same share of every kernel; in blocks where the outputs are a multiple of it."""
    rng, axes, weights = np.random.default_rng(0), output_axes(model), {}
    for name in kernels:
        array = np.moveaxis(model.get_array(name), axes.get(name, 0), 0)
        rows = len(array) // block if len(array) % block == 0 else len(array)
        mask = np.repeat(
            rng.random((rows, *array.shape[1:])) >= sparsity, len(array) // rows, axis=0
        )
        weights[name] = np.ascontiguousarray(np.moveaxis(array * mask, 0, axes.get(name, 0)))
    return model.with_weights(weights)


def session(
    model: OnnxModel, plan: Plan, kernels: Path | None
) -> tuple[ort.InferenceSession, float]:
    """A session, and the processor time that making it took, the shortest of some."""
    options, content = ort.SessionOptions(), model.to_proto().SerializeToString()
    options.intra_op_num_threads, options.log_severity_level = plan.threads, 3
    if (
        plan.threads > 1
    ):  # threads that wait for work behind a run would take time from the other session's
        options.add_session_config_entry("session.force_spinning_stop", "1")
    if kernels is not None:
        options.register_custom_ops_library(str(kernels))
    times = []
    for _ in range(SESSIONS):
        begun = time.process_time()
        built = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        times.append(time.process_time() - begun)
    return built, min(times)


def session_bytes(model: OnnxModel, kernels: Path | None) -> int:
    """What a session adds to the memory of a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        write_model(model, Path(folder, "model.onnx"))
        words = [
            sys.executable,
            "-c",
            _SESSION,
            str(Path(folder, "model.onnx")),
            str(kernels or ""),
        ]
        return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def in_turns(
    sessions: list[ort.InferenceSession], feeds: dict[str, Array], plan: Plan, rounds: int
) -> list[Array]:
    """Times of each session, one run of each after the other; without the first two rounds."""
    clock = time.process_time if plan.threads == 1 else time.perf_counter
    times = [list[float]() for _ in sessions]
    for _ in range(rounds + 2):
        for one, elapsed in zip(sessions, times, strict=True):
            begun = clock()
            one.run(None, feeds)
            elapsed.append(clock() - begun)
    return [np.array(elapsed[2:]) for elapsed in times]


def left(model: OnnxModel, feeds: dict[str, Array], kernels: list[str]) -> float:
    """The share of the multiply-adds of the pruned layers that is left, by the sizes that one run has."""
    proto = model.to_proto()
    outputs = {n.output[0]: n for n in proto.graph.node if set(n.input) & set(kernels)}
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in outputs)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    values = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run(None, feeds)
    total = nonzero = 0.0
    for node, value in zip(outputs.values(), values, strict=True):
        weight = model.get_array(next(name for name in node.input if name in kernels))
        positions = value.size / (value.shape[1] if node.op_type == "Conv" else value.shape[-1])
        total += positions * weight.size
        nonzero += positions * np.count_nonzero(weight)
    return nonzero / total


def measure(plan: Plan, rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each sparsity; to be called in a process of its own, because the library chooses its path once."""
    kernels = library.sparse_ops_library()
    model, names = deployed(plan.network)
    feeds = dict(named(inputs(plan.network, plan.batch, 0), model))
    dense, dense_made = session(model, plan, None)
    for sparsity in plan.sparsities:
        sparse = pruned(model, names, sparsity, plan.block)
        yield row(plan, sparse, names, feeds, (dense, dense_made), kernels, rounds) | {
            "sparsity": sparsity
        }


def row(
    plan: Plan,
    sparse: OnnxModel,
    names: list[str],
    feeds: dict[str, Array],
    dense: tuple[ort.InferenceSession, float],
    kernels: Path,
    rounds: int,
) -> dict[str, Any]:
    """One pruned network beside its dense form."""
    turned, result = convert_to_sparse_ops(sparse, names)
    fast, built = session(turned, plan, kernels)
    (reference,) = session(sparse, plan, None)[0].run(None, feeds)[:1]
    error = float(np.abs(fast.run(None, feeds)[0] - reference).max() / np.abs(reference).max())
    ours, theirs = in_turns([fast, dense[0]], feeds, plan, rounds)
    return {
        "layers": len(result),
        "multiply_adds_left": left(sparse, feeds, names),
        "ms": 1000 * float(np.median(ours)),
        "dense_ms": 1000 * float(np.median(theirs)),
        "ratio": float(np.median(ours) / np.median(theirs)),
        "ratio_of_shortest": float(ours.min() / theirs.min()),
        "session_ratio": built / dense[1],
        "session_bytes": session_bytes(turned, kernels),
        "dense_session_bytes": session_bytes(sparse, None),
        "relative_error": error,
    }


def busy(seconds: float = 2.0) -> float:
    """The share of the processors that is at work while this process sleeps; 1 where the system does not say."""

    def ticks() -> list[int]:
        stat = Path("/proc/stat")
        return (
            [int(word) for word in stat.read_text().split("\n")[0].split()[1:]]
            if stat.is_file()
            else [0] * 5
        )

    before = ticks()
    time.sleep(seconds)
    spent = [b - a for a, b in zip(before, ticks(), strict=True)]
    return 1 - (spent[3] + spent[4]) / max(sum(spent), 1)  # idle, and waiting for disks


def in_own_process(plan: Plan, rounds: int) -> list[dict[str, Any]]:
    """The rows of a plan, on its path."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | (
        {library.INSTRUCTION_SET_VARIABLE: plan.path} if plan.path else {}
    )
    code = "import json, sys; from benchmarks.kernels import *;"
    code += "print(json.dumps(list(measure(Plan(**json.loads(sys.argv[1])), int(sys.argv[2])))))"
    words = [sys.executable, "-c", code, json.dumps(vars(plan)), str(rounds)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return [{"plan": plan.name, **row} for row in json.loads(done.stdout.splitlines()[-1])]


def main() -> None:
    """Measure and print; the ratios come last."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="MobileNetV2 at 90 %% alone, few rounds"
    )
    parser.add_argument("--only", help="plans whose name contains this")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    options = parser.parse_args()
    rounds = 5 if options.quick else options.rounds
    rows, skipped = [], {}
    for plan in QUICK if options.quick else PLANS:
        if options.only and options.only not in plan.name:
            continue
        if plan.threads > 1 and busy() > IDLE:
            skipped[plan.name] = "unmeasured: the machine has other work"
            continue
        tries = PROCESSES if plan.threads > 1 and not options.quick else 1
        result = sorted(
            (in_own_process(plan, rounds) for _ in range(tries)), key=lambda one: one[0]["ratio"]
        )
        several = {"ratios_of_processes": [one[0]["ratio"] for one in result]} if tries > 1 else {}
        rows += [row | several for row in result[tries // 2]]
    ratios = {f"{r['plan']} at {100 * r['sparsity']:.3g} %": r["ratio"] for r in rows}
    report = {
        "command": "python -m benchmarks.kernels" + (" --quick" if options.quick else ""),
        "machine": {
            "processor": find_processor(),
            "path": library.query_instruction_sets(library.sparse_ops_library()).chosen,
            "cores": os.cpu_count(),
            "busy": busy(),
            "platform": platform.platform(),
        },
        "versions": {"onnx": onnx.__version__, "onnxruntime": ort.__version__},
        "rows": rows,
        "skipped": skipped,
        "ratios": ratios,
    }
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n")
    if options.json:
        print(json.dumps(report, indent=2))
        return
    print(report["machine"])
    for r in rows:
        print(
            f"{r['plan']} at {100 * r['sparsity']:.3g} %: {r['ms']:.1f} of {r['dense_ms']:.1f} ms, shortest"
            f" {r['ratio_of_shortest']:.3f}, multiply-adds left {r['multiply_adds_left']:.3f}, session"
            f" {r['session_ratio']:.2f} × the time and"
            f" {r['session_bytes'] / r['dense_session_bytes']:.2f} × the memory; error {r['relative_error']:.1g}"
        )
    for name, reason in skipped.items():
        print(f"{name}: {reason}")
    for key, value in ratios.items():
        print(f"{key}: {value:.3f}")


if __name__ == "__main__":
    main()
