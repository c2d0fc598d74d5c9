"""How busy decoding keeps the cores: samples per second of `batches` beside plain Pillow in one process.

    python -m benchmarks.decoding [--quick] [--json] [--out FILE] [--workers N]

Both make the same model inputs (224 px, normalised; rounding and the outermost pixels of random
crops differ by a few of 256 levels) of the same JPEGs of ImageNet's usual size: once with the
resize and centre crop of evaluation, once with the random crop and flip of training. Short rounds
are taken in turns in one process; the ratios of medians and of the best rounds are printed last.
Bar: 0.9 × workers on an otherwise idle machine. Where others compute on the same cores, three
ratios still tell: samples per second beside as many plain processes at once (of the bound), CPU
seconds per sample, and the share of the time that the workers ran or were ready to run.
"""

import argparse
import contextlib
import json
import os
import platform
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from PIL import Image

from benchmarks import series
from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.data.images import collection
from ltp_pipeline.data.images.decode import choose_random_box
from ltp_pipeline.data.loader import iter_batches
from ltp_pipeline.data.open import open_data
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings
from ltp_pipeline.stages.report.environment import find_processor
from ltp_pipeline.stages.train.memory import keep_freed_memory
from ltp_pipeline.system.files import write_json

SIZE, BATCH, SEED = 224, 32, 0
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Times = Mapping[tuple[str, str], list[float]]  # by kind of crop and way of decoding
INPUT = TensorInfo("image", "FLOAT", ("N", 3, SIZE, SIZE))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="file for the results")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    keep_freed_memory()  # as training does
    collection.MAX_DECODED_BYTES = 0  # as for a folder that does not fit in memory
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch), 384)
        rows = measure(Path(scratch), options.workers, 4 if options.quick else 20)
    report = {
        "command": "python -m benchmarks.decoding --out benchmarks/results/decoding.json",
        "seed": SEED,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {
            "python": platform.python_version(),
            "pillow": PIL.__version__,
            "numpy": np.__version__,
            "torch": torch.__version__,
        },
        "load_average_after": os.getloadavg()[0],
        "workers": options.workers,
        "rows": [{**row, "commit": series.commit(), "processor": find_processor()} for row in rows],
    }
    if options.out is not None:
        write_json(options.out, report)
    if options.json:
        print(json.dumps(report, indent=2))
        return
    for row in rows:
        ratios = ", ".join(f"{key} {value:.2f}" for key, value in row["ratios"].items())
        print(
            f"{row['kind']}: {row['way']} / plain Pillow in one process, {options.workers} workers: {ratios}"
        )


def write(folder: Path, count: int) -> None:
    """Make JPEGs of 500×375 and about 100 kB, as the mean image of ImageNet is."""
    rng = np.random.default_rng(SEED)
    for i in range(count):
        rough = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8)).resize(
            (500, 375), Image.Resampling.BICUBIC
        )
        noisy = np.asarray(rough, np.int16) + rng.integers(-20, 21, (375, 500, 3))
        file = folder / "train" / f"class{i % 4}" / f"{i}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, quality=90)
    (folder / "val").symlink_to("train")


def measure(folder: Path, workers: int, rounds: int) -> list[dict[str, Any]]:
    """Time every way in turns."""
    files = sorted((folder / "train").rglob("*.jpg"))
    settings = {
        "path": folder,
        "scale": 1 / 255,
        "mean": MEAN,
        "std": STD,
        "crop": 0.875,
        "augment": True,
    }
    opened = {
        n: open_data(DataSettings(**settings, num_workers=n), [INPUT], SEED) for n in (0, workers)
    }
    walls, cpus, shares = (defaultdict[tuple[str, str], list[float]](list) for _ in range(3))
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for r in range(rounds + 1):
            for kind, seed in (("evaluation", None), ("training", r)):
                ways: dict[str, Callable[[], int]] = {
                    "plain": partial(plain, files, seed),
                    "processes": partial(ours, opened[workers], seed),
                    "threads": partial(ours, opened[0], seed),
                    "bound": partial(bound, pool, workers, files, seed),
                }
                for way, run in ways.items():
                    begun, used, before = time.perf_counter(), cpu_seconds(), children()
                    count = run()
                    taken = time.perf_counter() - begun
                    if r:  # the first round starts the processes and fills the page cache
                        walls[kind, way].append(taken / count)
                        cpus[kind, way].append((cpu_seconds() - used) / count)
                        if (
                            way == "processes"
                            and (share := at_work(before, taken, workers)) is not None
                        ):
                            shares[kind, way].append(share)
    rows = [
        {
            "kind": kind,
            "way": way,
            **compare(walls, cpus, kind, way),
            "seconds": sum(walls[kind, way]) * len(files),
        }
        for kind, way in walls
        if way in ("processes", "threads")
    ]
    for row in rows:
        if found := shares.get((row["kind"], row["way"])):
            row["ratios"]["workers at work"] = float(np.median(found))
    return rows


def compare(walls: Times, cpus: Times, kind: str, way: str) -> dict[str, Any]:
    """Set one way beside the plain one of its kind, and beside as many plain ones at once."""
    wall, base, least = (np.array(walls[kind, w]) for w in (way, "plain", "bound"))
    cpu, base_cpu, least_cpu = (float(np.median(cpus[kind, w])) for w in (way, "plain", "bound"))
    return {
        "samples_per_second": 1 / float(np.median(wall)),
        "plain_samples_per_second": 1 / float(np.median(base)),
        "bound_samples_per_second": 1 / float(np.median(least)),
        "cpu_ms_per_sample": 1000 * cpu,
        "plain_cpu_ms_per_sample": 1000 * base_cpu,
        "bound_cpu_ms_per_sample": 1000 * least_cpu,
        "ratios": {
            "median": float(np.median(base) / np.median(wall)),
            "best": float(base.min() / wall.min()),
            "bound": float(np.median(base) / np.median(least)),
            "of the bound": float(np.median(least) / np.median(wall)),
            "cpu": base_cpu / cpu,
        },
    }


def ours(data: DatasetSplits, seed: int | None) -> int:
    """Go through the training split as training and evaluation do."""
    return sum(len(batch) for batch in iter_batches(data.train, BATCH, augment_seed=seed))


def bound(pool: ProcessPoolExecutor, workers: int, files: list[Path], seed: int | None) -> int:
    """Let as many processes do plain decoding at once, none waiting for another: what the cores have to give now."""
    return sum(pool.map(plain, [files[k::workers] for k in range(workers)], [seed] * workers))


def plain(files: list[Path], seed: int | None) -> int:
    """Do the same with Pillow and NumPy, one image after the other."""
    mean, std = (np.float32(v).reshape(3, 1, 1) for v in (MEAN, STD))
    for start in range(0, len(files), BATCH):
        made = [
            picture(file, seed, start + i) for i, file in enumerate(files[start : start + BATCH])
        ]
        x = np.stack(made).transpose(0, 3, 1, 2).astype(np.float32, order="C")
        x *= np.float32(1 / 255)
        x -= mean
        x /= std
    return len(files)


def picture(file: Path, seed: int | None, row: int) -> Any:
    """Decode one image."""
    with Image.open(file) as image:
        picture = image.convert("RGB")
        width, height = picture.size
        if seed is None:
            tall = round(SIZE / 0.875)
            picture = picture.resize((tall * width // height, tall), Image.Resampling.BILINEAR)
            left, top = (picture.width - SIZE) // 2, (tall - SIZE) // 2
            return np.asarray(picture.crop((left, top, left + SIZE, top + SIZE)))
        rng = random.Random(f"{seed}/{row}")  # noqa: S311 - augmentation, no secret
        box = choose_random_box(width, height, rng)
        picture = picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)
        return np.asarray(
            picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else picture
        )


def cpu_seconds() -> float:
    """Of this process and its children; only its own where there is no /proc."""
    return time.process_time() + sum(run for run, _ in children().values())


def children() -> dict[str, tuple[float, float]]:
    """Seconds that each child process has run, and has waited for a core, by its number."""
    found = {}
    for listed in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(
            OSError
        ):  # a thread that ends now, and has left its children to another
            for child in listed.read_text().split():
                run, wait, _ = Path(f"/proc/{child}/schedstat").read_text().split()
                found[child] = (int(run) / 1e9, int(wait) / 1e9)
    return found


def at_work(before: dict[str, tuple[float, float]], seconds: float, workers: int) -> float | None:
    """Share of the time that the busiest `workers` children ran or would have run, had others not held the cores."""
    after = children()
    shares = sorted(sum(after[c]) - sum(before[c]) for c in before.keys() & after.keys())
    return sum(shares[-workers:]) / (workers * seconds) if shares else None


if __name__ == "__main__":
    main()
