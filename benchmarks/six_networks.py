"""Run the whole pipeline on the paper's six networks: time of each stage, peak memory, file sizes.

    python -m benchmarks.six_networks [--quick] [--out FILE]

Networks have their full size, untrained weights and images of noise, so accuracies mean nothing.
The benchmark shows that import, learning, pruning, export and verification in onnxruntime work, and
their cost. Every network runs in a new process. Memory is that of the process and its children,
sampled ten times a second. Rows that FILE already has are not measured again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks import programs, series
from benchmarks.networks import NETWORKS, as_onnx, build_network

# Compression ratios of the paper, which has none for ResNet20.
COMPRESSIONS = {
    "resnet20": 10.0,
    "alexnet": 26.4,
    "resnet50": 9.11,
    "mobilenetv2": 3.0,
    "efficientnet-b0": 3.0,
    "mixnet-s": 2.0,
}
CLASSES = 4
SAMPLING_SECONDS = 0.1
MEMORY_LIMIT = 8 * 2**30


def write_images(folder: Path, size: int, train: int, val: int, seed: int = 0) -> None:
    """Write class folders of noise images, somewhat larger than the input of the network.

    Args:
        folder: Folder for the splits.
        size: Height and width of the input.
        train: Number of training images.
        val: Number of validation images.
        seed: Seed of the images.
    """
    from PIL import Image

    rng = np.random.default_rng(seed)
    for split, count in (("train", train), ("val", val)):
        for i in range(count):
            path = folder / split / f"class{i % CLASSES}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            shape = (size + size // 8, size + size // 4, 3)
            Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(path, compress_level=1)


def read_memory(pid: int) -> int:
    """Return the bytes of memory of a process and its children; 0 after its end."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        children = [
            int(c)
            for f in Path(f"/proc/{pid}/task").glob("*/children")
            for c in f.read_text().split()
        ]
    except OSError:
        return 0
    own = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))
    return own + sum(map(read_memory, children))


def run_command(command: list[str]) -> tuple[str, int]:
    """Run a command and return its output and its peak memory in bytes."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        peak = 0
        while True:
            try:
                out, err = process.communicate(timeout=SAMPLING_SECONDS)
                break
            except subprocess.TimeoutExpired:
                peak = max(peak, read_memory(process.pid))
    if process.returncode:
        raise RuntimeError(f"exit {process.returncode}: {err[-2000:]}")
    return out, peak


def measure_network(
    name: str, size: int | None = None, train: int = 24, val: int = 8, batch: int = 8
) -> dict[str, Any]:
    """Return the row of a network.

    Args:
        name: Name of the network.
        size: Height and width of images; None for the size of the paper.
        train: Number of training images.
        val: Number of validation images.
        batch: Batch size.
    """
    size = size or NETWORKS[name].size
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = folder / f"{name}.onnx"
        onnx.save(as_onnx(build_network(name, size=size), (3, size, size)), model)
        write_images(folder / "images", size, train, val)
        arguments = [model, folder / "images", folder / "run", COMPRESSIONS[name], batch]
        begin = time.monotonic()
        out, peak = run_command(
            [sys.executable, str(programs.FOLDER / "run_pipeline.py"), *map(str, arguments)]
        )
        seconds = time.monotonic() - begin
    result = json.loads(out.splitlines()[-1])
    report, pruned = result["report"], result["report"]["pruned"]
    return {
        "network": name,
        "image": size,
        "images": {"train": train, "val": val, "batch": batch},
        "kernels": report["model"]["num_layers"],
        "elements": report["model"]["layer_elements"],
        "compression": round(pruned["compression"], 4),
        "stages": {
            "import": round(result["import"], 2),
            **{stage: round(value, 2) for stage, value in report["timings"].items()},
            "all": round(seconds, 2),
        },
        "peak_memory_bytes": peak,
        "bytes": {
            "original": report["original"]["bytes"],
            **{f["encoding"]: f["bytes"] for f in pruned["files"]},
        },
        "parity_max_abs": {f["encoding"]: f["parity_max_abs"] for f in pruned["files"]},
        "threads": report["environment"]["threads"],
    }


def print_row(row: dict[str, Any]) -> None:
    """Print a row as text."""
    stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in row["stages"].items())
    sizes = ", ".join(f"{name} {count / 1e6:.2f}" for name, count in row["bytes"].items())
    layers = f"{row['kernels']} layers, {row['elements']:,} elements"
    print(f"{row['network']}: {layers}, {row['compression']:.2f}×")
    print(f"    seconds: {stages}\n    MB: {sizes}")
    peak, limit = row["peak_memory_bytes"] / 2**30, MEMORY_LIMIT / 2**30
    print(f"    peak memory {peak:.2f} GiB (limit: {limit:.0f})")


def main() -> None:
    """Measure the selected networks and print their rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="measure with few images of 64 px")
    parser.add_argument("--out", type=Path, help="write rows to this file, and resume from it")
    parser.add_argument(
        "--networks",
        nargs="+",
        choices=COMPRESSIONS,
        default=list(COMPRESSIONS),
        help="measure only these networks; default: all",
    )
    options = parser.parse_args()
    plans = [make_plan(name, options.quick) for name in options.networks]
    about = {
        "command": "python -m benchmarks.six_networks --out benchmarks/results/six_networks.json",
        "seed": 0,
    }
    for row in series.run_plans(plans, measure_plan, options.out, about):
        print_row(row)


def make_plan(name: str, quick: bool) -> series.Plan:
    """Return the plan of a network."""
    size = NETWORKS[name].size
    if quick:
        images = {"train": 8, "val": 4, "batch": 4}
        return {"network": name, "image": min(size, 64), "images": images}
    return {"network": name, "image": size, "images": {"train": 24, "val": 8, "batch": 8}}


def measure_plan(plan: series.Plan) -> dict[str, Any]:
    """Return the row of a plan."""
    return measure_network(plan["network"], plan["image"], **plan["images"])


if __name__ == "__main__":
    main()
