"""How the time to inspect and to import grows with a model: about 2 for twice the nodes, 4 where quadratic.

    python -m benchmarks.large_graph [--quick] [--json] [--limits]

Each graph is made of small nodes; its time at full size is divided by its time at half the size.
Every measurement is a process of its own, in processor time; the sizes take turns and the smallest
time of each counts. `import` is `import_model.build_network`: without the comparison with onnxruntime,
whose own time is not ours.

With `--limits`, large models of many kinds are inspected, and time and memory are held against what
is promised: 2 s and 100 µs for each node or tensor, 300 MB and three times the file.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from benchmarks.graph_kinds import GRAPHS, branches, chain, long_name, norms, tensors
from ltp_pipeline.graph.nodes import iter_graphs

SECONDS, SECONDS_EACH = 2.0, 100e-6  # that `inspect` may take, and for each node or tensor
MEGABYTES, FILES = 300, 3  # that it may take of memory, and how many times the file
_TIMED = """
import sys, time
from ltp_pipeline.settings.schema import PruneSettings
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.tools.inspect import inspect
if sys.argv[2] == "import":
    from ltp_pipeline.stages.import_model import network
begun = time.process_time()
if sys.argv[2] == "inspect":
    inspect(sys.argv[1])
else:
    import_model.build_network(import_model.read_model_file(sys.argv[1]), PruneSettings())
print(time.process_time() - begun)
"""
_LIMITED = """
import sys, time
from ltp_pipeline.errors import LtpError
from ltp_pipeline.stages.tools.inspect import inspect
try:
    inspect(sys.argv[1])
except LtpError as error:
    print(error.message[:80], file=sys.stderr)
lines = open("/proc/self/status").read().splitlines()  # getrusage has the peak of the process before it, too
print(time.process_time(), int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 2**10)
"""


# Models whose `inspect` is held against the limits, and their sizes.
LIMITED: list[tuple[str, Callable[[int], ModelProto], int]] = [
    ("chain", chain, 50_000),
    ("chain", chain, 200_000),
    *(
        (name, make, 50_000)
        for name, make in GRAPHS.items()
        if name not in ("chain", "branches", "norms", "tensors")
    ),
    ("branches", branches, 12_000),
    ("norms", norms, 10_000),
    ("tensors", tensors, 300_000),
    ("long_name", long_name, 50_000_000),
]


def measure(name: str, nodes: int, rounds: int) -> dict[str, float]:
    """Seconds at full and at half size, and their ratio, of both commands."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        sizes = (nodes // 2, nodes)
        for size in sizes:
            onnx.save(GRAPHS[name](size), str(Path(folder, f"{size}.onnx")))
        for what in ("inspect", "import"):
            half, full = (
                min(times)
                for times in zip(
                    *(
                        [_seconds(Path(folder, f"{size}.onnx"), what) for size in sizes]
                        for _ in range(rounds)
                    ),
                    strict=True,
                )
            )
            found |= {f"{what}_half_s": half, f"{what}_full_s": full, f"{what}_ratio": full / half}
    return found


def against_limits(name: str, make: Callable[[int], ModelProto], size: int) -> dict[str, Any]:
    """What `inspect` of one model takes, start of the process included, and what it may take."""
    with tempfile.TemporaryDirectory() as folder:
        path, model = Path(folder, "model.onnx"), make(size)
        parts = sum(len(g.node) + len(g.initializer) for g in iter_graphs(model.graph))
        parts += sum(len(function.node) for function in model.functions)
        path.write_bytes(model.SerializeToString())
        del model
        megabytes = path.stat().st_size / 2**20
        done = subprocess.run(
            [sys.executable, "-c", _LIMITED, str(path)], capture_output=True, text=True, check=True
        )
    seconds, memory = map(float, done.stdout.split())
    limits = SECONDS + SECONDS_EACH * parts, MEGABYTES + FILES * megabytes
    return {
        "graph": name,
        "parts": parts,
        "file_mb": round(megabytes, 1),
        "seconds": round(seconds, 2),
        "seconds_limit": round(limits[0], 2),
        "memory_mb": round(memory),
        "memory_limit_mb": round(limits[1]),
        "within": seconds <= limits[0] and memory <= limits[1],
        "refused": done.stderr.strip() or None,
    }


def _seconds(path: Path, what: str) -> float:
    command = [sys.executable, "-c", _TIMED, str(path), what]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, help="at full size; 100,000, or 20,000 with --quick")
    parser.add_argument("--graphs", nargs="*", default=list(GRAPHS), choices=list(GRAPHS))
    parser.add_argument(
        "--limits",
        action="store_true",
        help="time and memory of `inspect` against what is promised",
    )
    options = parser.parse_args()
    if options.limits:
        _show_limits(options.quick, options.json)
        return
    nodes = options.nodes or (20_000 if options.quick else 100_000)
    found = {name: measure(name, nodes, 1 if options.quick else 3) for name in options.graphs}
    if options.json:
        print(json.dumps({"nodes": nodes, "graphs": found}, indent=2))
        return
    print(f"{nodes:,} nodes against {nodes // 2:,}, seconds of processor time")
    for name, row in found.items():
        for what in ("inspect", "import"):
            print(
                f"{name:>10} {what:>7}: {row[f'{what}_half_s']:.2f} -> {row[f'{what}_full_s']:.2f}"
            )
    for name, row in found.items():
        print(
            f"{name:>10} ratio: inspect {row['inspect_ratio']:.2f}, import {row['import_ratio']:.2f}"
        )


def _show_limits(quick: bool, as_json: bool) -> None:
    rows = []
    for name, make, size in LIMITED:
        rows.append(against_limits(name, make, size // 10 if quick else size))
        if not as_json:
            row = "{graph:>14} {parts:>9,}: {seconds} of {seconds_limit} s, {memory_mb} of {memory_limit_mb} MB"
            print(row.format(**rows[-1]), flush=True)
    if as_json:
        print(json.dumps({"limits": rows}, indent=2))
    else:
        print(f"within the limits: {sum(row['within'] for row in rows)} of {len(rows)}")


if __name__ == "__main__":
    main()
