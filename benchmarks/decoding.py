"""Compare the speed of the image loader with plain Pillow in one process.

    python -m benchmarks.decoding [--quick] [--json] [--out FILE] [--workers N]

Both make the same model inputs from the same JPEGs of ImageNet's usual size: 224 px, normalized. A
few of 256 levels may differ by rounding. Evaluation resizes and crops the center; training crops
and flips at random. Short rounds alternate in one process. The ratios of medians and of the best
rounds are printed last. The limit is 0.9 × workers on an idle machine. Three ratios are meaningful
on a busy machine too: samples per second compared with as many plain processes ("of the bound"),
CPU seconds per sample, and the fraction of the time that the workers ran or were ready to run.
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
Times = Mapping[tuple[str, str], list[float]]  # seconds by kind of crop and way of decoding
INPUT = TensorInfo("image", "FLOAT", ("N", 3, SIZE, SIZE))


def main() -> None:
    """Measure all ways of decoding and print their ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="measure in fewer rounds")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    parser.add_argument(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        help="number of worker processes; default: the number of cores",
    )
    options = parser.parse_args()
    keep_freed_memory()  # as training does
    collection.MAX_DECODED_BYTES = 0  # as with a folder that does not fit into memory
    with tempfile.TemporaryDirectory() as scratch:
        write_images(Path(scratch), 384)
        rows = measure_ways(Path(scratch), options.workers, 4 if options.quick else 20)
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
        way = f"{row['kind']}: {row['way']} / plain Pillow in one process"
        print(f"{way}, {options.workers} workers: {ratios}")


def write_images(folder: Path, count: int) -> None:
    """Write JPEGs of 500×375 pixels and about 100 kB, as the mean image of ImageNet has."""
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


def measure_ways(folder: Path, workers: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each kind of crop and each way of the loader; ways alternate.

    Args:
        folder: Folder of the images.
        workers: Number of worker processes.
        rounds: Number of measurements of each way.
    """
    files = sorted((folder / "train").rglob("*.jpg"))
    settings = DataSettings(
        path=folder, scale=1 / 255, mean=MEAN, std=STD, crop=0.875, augment=True, num_workers=0
    )
    with_workers = settings.model_copy(update={"num_workers": workers})
    threads_data = open_data(settings, [INPUT], SEED)
    processes_data = open_data(with_workers, [INPUT], SEED)
    walls, cpus, fractions = (defaultdict[tuple[str, str], list[float]](list) for _ in range(3))
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for r in range(rounds + 1):
            for kind, seed in (("evaluation", None), ("training", r)):
                ways: dict[str, Callable[[], int]] = {
                    "plain": partial(decode_plainly, files, seed),
                    "processes": partial(load_batches, processes_data, seed),
                    "threads": partial(load_batches, threads_data, seed),
                    "bound": partial(decode_in_parallel, pool, workers, files, seed),
                }
                for way, run in ways.items():
                    begin, cpu_before = time.perf_counter(), sum_cpu_seconds()
                    before = read_children()
                    count = run()
                    seconds = time.perf_counter() - begin
                    if r == 0:  # it starts the processes and fills the page cache
                        continue
                    walls[kind, way].append(seconds / count)
                    cpus[kind, way].append((sum_cpu_seconds() - cpu_before) / count)
                    if way == "processes":
                        fraction = busy_fraction(before, seconds, workers)
                        if fraction is not None:
                            fractions[kind, way].append(fraction)
    rows = [
        {
            "kind": kind,
            "way": way,
            **compare_times(walls, cpus, kind, way),
            "seconds": sum(walls[kind, way]) * len(files),
        }
        for kind, way in walls
        if way in ("processes", "threads")
    ]
    for row in rows:
        row_fractions = fractions.get((row["kind"], row["way"]))
        if row_fractions:
            row["ratios"]["workers at work"] = float(np.median(row_fractions))
    return rows


def compare_times(walls: Times, cpus: Times, kind: str, way: str) -> dict[str, Any]:
    """Compare a way of decoding with one plain process and with as many plain processes.

    Args:
        walls: Seconds per sample.
        cpus: CPU seconds per sample.
        kind: Kind of crop.
        way: Way of decoding.
    """
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


def load_batches(data: DatasetSplits, seed: int | None) -> int:
    """Load the training split as training and evaluation do, and return the number of samples."""
    return sum(len(batch) for batch in iter_batches(data.train, BATCH, augment_seed=seed))


def decode_in_parallel(
    pool: ProcessPoolExecutor, workers: int, files: list[Path], seed: int | None
) -> int:
    """Decode with plain Pillow in independent processes, which is the bound of the cores."""
    return sum(
        pool.map(decode_plainly, [files[k::workers] for k in range(workers)], [seed] * workers)
    )


def decode_plainly(files: list[Path], seed: int | None) -> int:
    """Decode with Pillow and NumPy, an image at a time, and return the number of images."""
    mean, std = (np.array(v, np.float32).reshape(3, 1, 1) for v in (MEAN, STD))
    for start in range(0, len(files), BATCH):
        batch = enumerate(files[start : start + BATCH], start)
        images = [decode_image(file, seed, row) for row, file in batch]
        x = np.stack(images).transpose(0, 3, 1, 2).astype(np.float32, order="C")
        x *= np.float32(1 / 255)
        x -= mean
        x /= std
    return len(files)


def decode_image(file: Path, seed: int | None, row: int) -> Any:
    """Return an image of 224×224 pixels, cropped at random if a seed is passed."""
    with Image.open(file) as image:
        picture = image.convert("RGB")
        width, height = picture.size
        if seed is None:
            tall = round(SIZE / 0.875)
            picture = picture.resize((tall * width // height, tall), Image.Resampling.BILINEAR)
            left, top = (picture.width - SIZE) // 2, (tall - SIZE) // 2
            return np.asarray(picture.crop((left, top, left + SIZE, top + SIZE)))
        rng = random.Random(f"{seed}/{row}")  # noqa: S311 - not used for security
        box = choose_random_box(width, height, rng)
        picture = picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)
        return np.asarray(
            picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else picture
        )


def sum_cpu_seconds() -> float:
    """Return CPU seconds of this process and its children; without /proc, only of this process."""
    return time.process_time() + sum(run for run, _ in read_children().values())


def read_children() -> dict[str, tuple[float, float]]:
    """Return the seconds that each child process ran and waited for a core, by process id."""
    times: dict[str, tuple[float, float]] = {}
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread ended and left its children to another
            for child in path.read_text().split():
                run, wait, _ = Path(f"/proc/{child}/schedstat").read_text().split()
                times[child] = (int(run) / 1e9, int(wait) / 1e9)
    return times


def busy_fraction(
    before: dict[str, tuple[float, float]], seconds: float, workers: int
) -> float | None:
    """Return the fraction of the time that the busiest children ran or waited for a core.

    Args:
        before: Result of `read_children` at the beginning.
        seconds: Time since then.
        workers: Number of children that count.

    Returns:
        The fraction; None without /proc.
    """
    after = read_children()
    busy_seconds = sorted(sum(after[c]) - sum(before[c]) for c in before.keys() & after.keys())
    return sum(busy_seconds[-workers:]) / (workers * seconds) if busy_seconds else None


if __name__ == "__main__":
    main()
