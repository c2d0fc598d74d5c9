"""Measure the latency of the sparse kernels: `python -m benchmarks.kernels`.

The networks are ResNet-50 and MobileNetV2 with 224 pixels, and an encoder of BERT's width with 128
tokens. Weights are random. Zeros are at random places, with the same fraction in every layer,
unstructured or in blocks of four output channels. Each network alternates with the dense one in the
same process. The result is the ratio of the medians; the ratio of the shortest times is reported
too. One thread is measured in processor time, which other programs hardly change. Several threads
are measured in five processes, of which the median counts. benchmarks/kernels_pruned.py measures
networks that were trained and pruned. Ratios depend on the processor and its instruction set, so
both are reported.
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

from benchmarks import programs
from benchmarks.int8 import make_inputs, make_network, rename_inputs
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
PROCESSES = 5  # for several threads, whose placement on cores differs between processes
# Largest busy fraction of the processors at which several threads can be measured.
IDLE = 0.1
POINTWISE_ONLY = "mobilenetv2"


@dataclass(frozen=True)
class Plan:
    """A network, how it is pruned, and the instruction set that runs it."""

    network: str
    sparsities: tuple[float, ...]
    block: int = 1
    path: str = ""  # instruction set; empty for the best one of the processor
    threads: int = 1
    batch: int = 1

    @property
    def name(self) -> str:
        """Name of the plan in the results file."""
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


def make_deploy_model(name: str) -> tuple[OnnxModel, list[str]]:
    """Return the deploy graph of a network and the names of the layer weights to prune."""
    model = OnnxModel.from_proto(make_network(name))
    weight_names = [layer.name for layer in find_layer_weights(model)]
    model, _ = deploy.rewrite_model(model, weight_names)
    if name == POINTWISE_ONLY:
        shapes = {name: model.get_array(name).shape for name in weight_names}
        weight_names = [n for n, shape in shapes.items() if len(shape) == 2 or shape[2:] == (1, 1)]
    return model, weight_names


def find_output_axes(model: OnnxModel) -> dict[str, int]:
    """Return the axis of the output channels of weights, unless it is 0."""
    result = {}
    for node in model.graph.node:
        if node.op_type == "MatMul" or (
            node.op_type == "Gemm" and not get_attribute(node, "transB", 0)
        ):
            result[node.input[1]] = 1
    return result


def set_random_zeros(
    model: OnnxModel, weight_names: list[str], sparsity: float, block: int
) -> OnnxModel:
    """Return the model with zeros at random places.

    Args:
        model: The dense model.
        weight_names: Names of the layer weights to prune.
        sparsity: Fraction of zeros in each of them.
        block: Number of adjacent output channels that are pruned together. A layer is pruned
            unstructured if its output channels are not a multiple of it.
    """
    rng, axes, weights = np.random.default_rng(0), find_output_axes(model), {}
    for name in weight_names:
        array = np.moveaxis(model.get_array(name), axes.get(name, 0), 0)
        rows = len(array) // block if len(array) % block == 0 else len(array)
        mask = np.repeat(
            rng.random((rows, *array.shape[1:])) >= sparsity, len(array) // rows, axis=0
        )
        weights[name] = np.ascontiguousarray(np.moveaxis(array * mask, 0, axes.get(name, 0)))
    return model.with_weights(weights)


def make_session(
    model: OnnxModel, plan: Plan, operators: Path | None
) -> tuple[ort.InferenceSession, float]:
    """Return a session and the shortest processor time in seconds that making it took.

    Args:
        model: The model.
        plan: Its number of threads is used.
        operators: Library of sparse operators; None for a dense model.
    """
    options, content = ort.SessionOptions(), model.to_proto().SerializeToString()
    options.intra_op_num_threads, options.log_severity_level = plan.threads, 3
    if plan.threads > 1:  # threads that wait after a run would slow the other session down
        options.add_session_config_entry("session.force_spinning_stop", "1")
    if operators is not None:
        options.register_custom_ops_library(str(operators))
    times = []
    for _ in range(SESSIONS):
        begin = time.process_time()
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        times.append(time.process_time() - begin)
    return session, min(times)


def measure_memory(model: OnnxModel, operators: Path | None) -> int:
    """Return the bytes that a session adds to the memory of a new process."""
    with tempfile.TemporaryDirectory() as folder:
        write_model(model, Path(folder, "model.onnx"))
        program = [sys.executable, str(programs.FOLDER / "session_memory.py")]
        libraries = [] if operators is None else [str(operators)]
        command = [*program, str(Path(folder, "model.onnx")), *libraries]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def time_sessions(
    sessions: list[ort.InferenceSession], feeds: dict[str, Array], plan: Plan, rounds: int
) -> list[Array]:
    """Return the seconds of each run by session; sessions alternate, and two rounds warm up."""
    clock = time.process_time if plan.threads == 1 else time.perf_counter
    times = [list[float]() for _ in sessions]
    for _ in range(rounds + 2):
        for session, elapsed in zip(sessions, times, strict=True):
            begin = clock()
            session.run(None, feeds)
            elapsed.append(clock() - begin)
    return [np.array(elapsed[2:]) for elapsed in times]


def fraction_of_multiply_adds(
    model: OnnxModel, feeds: dict[str, Array], weight_names: list[str]
) -> float:
    """Return the fraction of the multiply-adds of the pruned layers that has nonzero weights."""
    proto = model.to_proto()
    outputs = {n.output[0]: n for n in proto.graph.node if set(n.input) & set(weight_names)}
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in outputs)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    values = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run(None, feeds)
    total = nonzero = 0.0
    for node, value in zip(outputs.values(), values, strict=True):
        weight = model.get_array(next(name for name in node.input if name in weight_names))
        positions = value.size / (value.shape[1] if node.op_type == "Conv" else value.shape[-1])
        total += positions * weight.size
        nonzero += positions * np.count_nonzero(weight)
    return nonzero / total


def measure_plan(plan: Plan, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each sparsity; the library selects its instruction set once per process."""
    operators = library.sparse_ops_library()
    model, weight_names = make_deploy_model(plan.network)
    feeds = dict(rename_inputs(make_inputs(plan.network, plan.batch, 0), model))
    dense = make_session(model, plan, None)
    for sparsity in plan.sparsities:
        sparse = set_random_zeros(model, weight_names, sparsity, plan.block)
        row = compare_networks(plan, sparse, weight_names, feeds, dense, operators, rounds)
        yield {**row, "sparsity": sparsity}


def compare_networks(
    plan: Plan,
    sparse: OnnxModel,
    weight_names: list[str],
    feeds: dict[str, Array],
    dense: tuple[ort.InferenceSession, float],
    operators: Path,
    rounds: int,
) -> dict[str, Any]:
    """Compare a pruned network on sparse operators with the dense network.

    Args:
        plan: How it runs.
        sparse: The pruned network with dense operators.
        weight_names: Names of the layer weights to convert.
        feeds: Inputs by name.
        dense: Session of the dense network, and the seconds that making it took.
        operators: Library of sparse operators.
        rounds: Number of measured runs.
    """
    converted, layers = convert_to_sparse_ops(sparse, weight_names)
    session, session_seconds = make_session(converted, plan, operators)
    dense_session, dense_session_seconds = dense
    (expected,) = make_session(sparse, plan, None)[0].run(None, feeds)[:1]
    error = float(np.abs(session.run(None, feeds)[0] - expected).max() / np.abs(expected).max())
    seconds, dense_seconds = time_sessions([session, dense_session], feeds, plan, rounds)
    return {
        "layers": len(layers),
        "multiply_adds_left": fraction_of_multiply_adds(sparse, feeds, weight_names),
        "ms": 1000 * float(np.median(seconds)),
        "dense_ms": 1000 * float(np.median(dense_seconds)),
        "ratio": float(np.median(seconds) / np.median(dense_seconds)),
        "ratio_of_shortest": float(seconds.min() / dense_seconds.min()),
        "session_ratio": session_seconds / dense_session_seconds,
        "session_bytes": measure_memory(converted, operators),
        "dense_session_bytes": measure_memory(sparse, None),
        "relative_error": error,
    }


def measure_load(seconds: float = 2.0) -> float:
    """Return the busy fraction of the processors while this process sleeps; 1 without /proc."""
    before = _read_ticks()
    time.sleep(seconds)
    ticks = [b - a for a, b in zip(before, _read_ticks(), strict=True)]
    idle = ticks[3] + ticks[4]  # idle, and waiting for disks
    return 1 - idle / max(sum(ticks), 1)


def _read_ticks() -> list[int]:
    """Return the ticks that the processors spent in each state; zeros without /proc."""
    path = Path("/proc/stat")
    if not path.is_file():
        return [0] * 5
    return [int(count) for count in path.read_text().split("\n")[0].split()[1:]]


def run_in_process(plan: Plan, rounds: int) -> list[dict[str, Any]]:
    """Return the rows of a plan from a new process with its instruction set."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if plan.path:
        environment[library.INSTRUCTION_SET_VARIABLE] = plan.path
    program = [sys.executable, "-m", "benchmarks.kernels", "--rounds", str(rounds)]
    command = [*program, "--plan", json.dumps(vars(plan))]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [{"plan": plan.name, **row} for row in json.loads(result.stdout.splitlines()[-1])]


def main() -> None:
    """Measure the selected plans and print the ratios last."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="measure only MobileNetV2 at 90 %%, in few rounds"
    )
    parser.add_argument("--only", help="measure only plans whose name contains this text")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="number of measured runs; default: %(default)s"
    )
    parser.add_argument("--plan", help=argparse.SUPPRESS)  # for run_in_process
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    options = parser.parse_args()
    if options.plan:
        plan = Plan(**json.loads(options.plan))
        print(json.dumps(list(measure_plan(plan, options.rounds))))
        return
    operators = library.sparse_ops_library()
    rounds = 5 if options.quick else options.rounds
    rows, skipped = [], {}
    for plan in QUICK if options.quick else PLANS:
        if options.only and options.only not in plan.name:
            continue
        if plan.threads > 1 and measure_load() > IDLE:
            skipped[plan.name] = "unmeasured: the machine has other work"
            continue
        tries = PROCESSES if plan.threads > 1 and not options.quick else 1
        results = [run_in_process(plan, rounds) for _ in range(tries)]
        results.sort(key=lambda result: result[0]["ratio"])
        for row in results[tries // 2]:
            if tries > 1:
                row["ratios_of_processes"] = [result[0]["ratio"] for result in results]
            rows.append(row)
    ratios = {f"{r['plan']} at {100 * r['sparsity']:.3g} %": r["ratio"] for r in rows}
    report = {
        "command": "python -m benchmarks.kernels" + (" --quick" if options.quick else ""),
        "machine": {
            "processor": find_processor(),
            "path": library.query_instruction_sets(operators).chosen,
            "cores": os.cpu_count(),
            "busy": measure_load(),
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
        memory_ratio = r["session_bytes"] / r["dense_session_bytes"]
        print(
            f"{r['plan']} at {100 * r['sparsity']:.3g} %: {r['ms']:.1f} of {r['dense_ms']:.1f} ms,"
            f" shortest {r['ratio_of_shortest']:.3f},"
            f" multiply-adds left {r['multiply_adds_left']:.3f},"
            f" session {r['session_ratio']:.2f} × the time and {memory_ratio:.2f} × the memory;"
            f" error {r['relative_error']:.1g}"
        )
    for name, reason in skipped.items():
        print(f"{name}: {reason}")
    for key, value in ratios.items():
        print(f"{key}: {value:.3f}")


if __name__ == "__main__":
    main()
