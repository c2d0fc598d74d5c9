"""Measure how the time to inspect and to import a model grows with its number of nodes.

    python -m benchmarks.large_graph [--quick] [--json] [--limits]

Each graph consists of small nodes. Its time at full size is divided by its time at half the size:
about 2 for linear growth, 4 for quadratic growth. Every measurement is a new process, in processor
time. Sizes alternate, and the shortest time of each counts. `import` is
`import_model.build_network`, without the comparison with onnxruntime.

With `--limits`, large models of many kinds are inspected. Time and memory are compared with their
limits: 2 s and 100 µs for each node or tensor, 300 MB and three times the size of the file.
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

from benchmarks import programs
from benchmarks.graph_kinds import GRAPHS, make_long_name
from ltp_pipeline.graph.nodes import iter_graphs

# Limits of `inspect`: seconds, seconds for each node or tensor, MB, and sizes of the file.
SECONDS, SECONDS_EACH = 2.0, 100e-6
MEGABYTES, FILES = 300, 3
# Models that --limits inspects, and their sizes.
OTHER_SIZES = {"chain": 200_000, "branches": 12_000, "norms": 10_000, "tensors": 300_000}
LIMITED: list[tuple[str, Callable[[int], ModelProto], int]] = [
    ("chain", GRAPHS["chain"], 50_000),
    *((name, make, OTHER_SIZES.get(name, 50_000)) for name, make in GRAPHS.items()),
    ("long_name", make_long_name, 50_000_000),
]


def measure_growth(name: str, nodes: int, rounds: int) -> dict[str, float]:
    """Return seconds at half and at full size, and their ratio, of both commands.

    Args:
        name: Name of the graph.
        nodes: Number of nodes at full size.
        rounds: Number of measurements.
    """
    measurements: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{size}.onnx") for size in (nodes // 2, nodes)]
        for path, size in zip(paths, (nodes // 2, nodes), strict=True):
            onnx.save(GRAPHS[name](size), str(path))
        for command in ("inspect", "import"):
            times = [[_time_command(path, command) for path in paths] for _ in range(rounds)]
            half, full = map(min, zip(*times, strict=True))
            measurements[f"{command}_half_s"] = half
            measurements[f"{command}_full_s"] = full
            measurements[f"{command}_ratio"] = full / half
    return measurements


def check_limits(name: str, make: Callable[[int], ModelProto], size: int) -> dict[str, Any]:
    """Return time and memory of `inspect` with their limits; the start of the process counts.

    Args:
        name: Name of the model.
        make: Function that makes it.
        size: Argument of the function.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, model = Path(folder, "model.onnx"), make(size)
        parts = sum(len(g.node) + len(g.initializer) for g in iter_graphs(model.graph))
        parts += sum(len(function.node) for function in model.functions)
        path.write_bytes(model.SerializeToString())
        del model
        megabytes = path.stat().st_size / 2**20
        process = subprocess.run(
            [sys.executable, str(programs.FOLDER / "inspect_model.py"), str(path)],
            capture_output=True,
            text=True,
            check=True,
        )
    seconds, memory = map(float, process.stdout.split())
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
        "refused": process.stderr.strip() or None,
    }


def _time_command(path: Path, command: str) -> float:
    """Return the processor time of `inspect` or `import` in a new process."""
    arguments = [str(programs.FOLDER / "time_command.py"), str(path), command]
    process = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True
    )
    return float(process.stdout)


def main() -> None:
    """Measure the selected graphs and print their times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="measure smaller graphs, once each")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument(
        "--nodes",
        type=int,
        help="number of nodes at full size; default: 100,000, and 20,000 with --quick",
    )
    parser.add_argument(
        "--graphs",
        nargs="*",
        default=list(GRAPHS),
        choices=list(GRAPHS),
        help="measure only these graphs; default: all",
    )
    parser.add_argument(
        "--limits",
        action="store_true",
        help="compare time and memory of `inspect` with their limits instead",
    )
    options = parser.parse_args()
    if options.limits:
        _print_limits(options.quick, options.json)
        return
    nodes = options.nodes or (20_000 if options.quick else 100_000)
    rounds = 1 if options.quick else 3
    rows = {name: measure_growth(name, nodes, rounds) for name in options.graphs}
    if options.json:
        print(json.dumps({"nodes": nodes, "graphs": rows}, indent=2))
        return
    print(f"{nodes // 2:,} and {nodes:,} nodes, seconds of processor time")
    for name, row in rows.items():
        for command in ("inspect", "import"):
            half, full = row[f"{command}_half_s"], row[f"{command}_full_s"]
            print(f"{name:>10} {command:>7}: {half:.2f} -> {full:.2f}")
    for name, row in rows.items():
        ratios = f"inspect {row['inspect_ratio']:.2f}, import {row['import_ratio']:.2f}"
        print(f"{name:>10} ratio: {ratios}")


def _print_limits(quick: bool, as_json: bool) -> None:
    """Print time and memory of `inspect` next to their limits."""
    rows = []
    for name, make, size in LIMITED:
        rows.append(check_limits(name, make, size // 10 if quick else size))
        if not as_json:
            times = "{graph:>14} {parts:>9,}: {seconds} of {seconds_limit} s"
            memory = "{memory_mb} of {memory_limit_mb} MB"
            print(f"{times}, {memory}".format(**rows[-1]), flush=True)
    if as_json:
        print(json.dumps({"limits": rows}, indent=2))
    else:
        print(f"within the limits: {sum(row['within'] for row in rows)} of {len(rows)}")


if __name__ == "__main__":
    main()
