"""The paper's six networks at full size through the whole pipeline: time of each stage, peak memory, file sizes.

    python -m benchmarks.six_networks [--quick] [--out FILE]

Weights are untrained and the images are noise, so accuracies mean nothing here; what is shown is
that import, learning, pruning, export and the proof in onnxruntime work, and what they cost. Every
network has a process of its own; memory is that of the process and its children together, looked at
ten times a second. Rows that FILE has already are not measured again.
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

from benchmarks import series
from benchmarks.networks import NETWORKS, as_onnx, build

COMPRESSIONS = {  # the paper's, which gives none for ResNet20
    "resnet20": 10.0,
    "alexnet": 26.4,
    "resnet50": 9.11,
    "mobilenetv2": 3.0,
    "efficientnet-b0": 3.0,
    "mixnet-s": 2.0,
}
CLASSES = 4
LOOK_EVERY_SECONDS = 0.1
MEMORY_LIMIT = 8 * 2**30

_RUN = """
import json, sys, time
import torch, onnxruntime
import ltp_pipeline
from ltp_pipeline.report_io import plain
path, data, out, compression, batch = sys.argv[1:]
begun = time.monotonic()
ltp_pipeline.import_model(path)
taken = time.monotonic() - begun
settings = {
    "data": {"path": data, "scale": 1 / 255, "mean": [0.5], "std": [0.25]},
    "budget": {"target_compression": float(compression)},
    "train": {"epochs": 1, "finetune_epochs": 1, "batch_size": int(batch), "lr": 0.003, "skip_label_check": True},
    "baseline": {"mode": "none"},
}
report = plain(ltp_pipeline.run(path, out=out, **settings).report)
print(json.dumps({"import": taken, "report": report}))
"""


def write_images(folder: Path, size: int, train: int, val: int, seed: int = 0) -> None:
    """Class folders of noisy images, somewhat larger than the network takes them."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    for split, count in (("train", train), ("val", val)):
        for i in range(count):
            path = folder / split / f"class{i % CLASSES}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            shape = (size + size // 8, size + size // 4, 3)
            Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(path, compress_level=1)


def memory_of(pid: int) -> int:
    """Bytes that a process and its children hold now; zero when it has ended."""
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
    return own + sum(map(memory_of, children))


def watched(command: list[str]) -> tuple[str, int]:
    """What a command printed, and its peak memory with its children."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        peak = 0
        while True:
            try:
                out, err = process.communicate(timeout=LOOK_EVERY_SECONDS)
                break
            except subprocess.TimeoutExpired:
                peak = max(peak, memory_of(process.pid))
    if process.returncode:
        raise RuntimeError(f"exit {process.returncode}: {err[-2000:]}")
    return out, peak


def measure(
    name: str, size: int | None = None, train: int = 24, val: int = 8, batch: int = 8
) -> dict[str, Any]:
    """One network from building to proven files."""
    size = size or NETWORKS[name].size
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = folder / f"{name}.onnx"
        onnx.save(as_onnx(build(name, size=size), (3, size, size)), model)
        write_images(folder / "images", size, train, val)
        arguments = [model, folder / "images", folder / "run", COMPRESSIONS[name], batch]
        begun = time.monotonic()
        out, peak = watched([sys.executable, "-c", _RUN, *map(str, arguments)])
        taken = time.monotonic() - begun
    found = json.loads(out.splitlines()[-1])
    report, pruned = found["report"], found["report"]["pruned"]
    return {
        "network": name,
        "image": size,
        "images": {"train": train, "val": val, "batch": batch},
        "kernels": report["model"]["num_layers"],
        "elements": report["model"]["layer_elements"],
        "compression": round(pruned["compression"], 4),
        "stages": {
            "import": round(found["import"], 2),
            **_rounded(report["timings"]),
            "all": round(taken, 2),
        },  # seconds
        "peak_memory_bytes": peak,
        "bytes": {
            "original": report["original"]["bytes"],
            **{f["encoding"]: f["bytes"] for f in pruned["files"]},
        },
        "parity_max_abs": {f["encoding"]: f["parity_max_abs"] for f in pruned["files"]},
        "threads": report["environment"]["threads"],
    }


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {key: round(value, 2) for key, value in values.items()}


def show(row: dict[str, Any]) -> None:
    """A line of the table."""
    stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in row["stages"].items())
    sizes = ", ".join(f"{name} {count / 1e6:.2f}" for name, count in row["bytes"].items())
    print(
        f"{row['network']}: {row['kernels']} kernels, {row['elements']:,} elements, {row['compression']:.2f}×"
    )
    print(f"    seconds: {stages}\n    MB: {sizes}")
    print(
        f"    peak memory {row['peak_memory_bytes'] / 2**30:.2f} GiB  (at most {MEMORY_LIMIT / 2**30:.0f})"
    )


def main() -> None:
    """Measure each network in turn and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="images of 64 px, and fewer of them")
    parser.add_argument("--out", type=Path, help="results file to go on with")
    parser.add_argument("--networks", nargs="+", choices=COMPRESSIONS, default=list(COMPRESSIONS))
    options = parser.parse_args()
    plans = [plan(name, options.quick) for name in options.networks]
    about = {
        "command": "python -m benchmarks.six_networks --out benchmarks/results/six_networks.json",
        "seed": 0,
    }
    for row in series.run(plans, at_work, options.out, about):
        show(row)


def plan(name: str, quick: bool) -> series.Plan:
    """How one network is measured."""
    size = NETWORKS[name].size
    small = {"image": min(size, 64), "images": {"train": 8, "val": 4, "batch": 4}}
    return {
        "network": name,
        **(small if quick else {"image": size, "images": {"train": 24, "val": 8, "batch": 8}}),
    }


def at_work(plan: series.Plan) -> dict[str, Any]:
    """Measure a plan."""
    return measure(plan["network"], plan["image"], **plan["images"])


if __name__ == "__main__":
    main()
