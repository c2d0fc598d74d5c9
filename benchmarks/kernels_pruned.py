"""Networks that were really pruned, on sparse kernels: some of their layers keep many weights, others few.

    python -m benchmarks.kernels_pruned [--out FILE] [--runs FOLDER] [--cifar FOLDER] [--data
    FOLDER] [cells...]

ResNet20, and the small ResNet of benchmarks/matrix.py made wide, pruned for so few epochs that
their accuracy means
nothing: what counts is how unevenly weights are left. With --runs, every run directory in the
    folder is timed instead, as benchmarks/blocks.py leaves them. One sample, one thread, in turns
    with the dense deploy file.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ltp_pipeline
from benchmarks import datasets, matrix, series
from benchmarks.kernels import Plan, row, session
from ltp_pipeline.exporters.graphs import deploy
from ltp_pipeline.exporters.sparse_ops import library
from ltp_pipeline.exporters.sparse_ops.cost_model import select_layers
from ltp_pipeline.graph.layer_weights import find_layer_weights
from ltp_pipeline.results import read_write
from ltp_pipeline.run_directory.names import REPORT_JSON
from ltp_pipeline.stages.import_model.read import read_model_file

CELLS = ("resnet20", "wide-resnet")
COMPRESSIONS = (10, 20)
BLOCKS = (None, "4x1")
ROUNDS = 200
SHORT = {"epochs": 2, "finetune_epochs": 1}
TAKEN = (
    "layers",
    "ms",
    "dense_ms",
    "ratio",
    "ratio_of_shortest",
    "multiply_adds_left",
    "relative_error",
)


def main() -> None:
    """Time the rows asked for; networks are trained and pruned once."""
    parser = matrix.parser(__doc__, CELLS)
    parser.add_argument("--runs", type=Path, help="folder of run directories to time instead")
    options = matrix.ready(parser.parse_args(), CELLS)
    plans: list[series.Plan] = [
        {"cell": cell, "compression": c, "block": block}
        for cell in options.cells
        for c in COMPRESSIONS
        for block in BLOCKS
    ]
    if options.quick:
        plans = plans[:1]
    about = {
        "command": "python -m benchmarks.kernels_pruned --out benchmarks/results/kernels_pruned.json"
    }
    at_work = partial(measure, folders=options.folders, cache=options.cache)
    if options.runs is not None:
        plans = [
            {"run": folder.name} for folder in sorted(options.runs.iterdir()) if folder.is_dir()
        ]
        about = {"command": "python -m benchmarks.kernels_pruned --runs FOLDER"}
        at_work = partial(measure_run, folder=options.runs)
    series.run(plans, at_work, options.out, about, options.workers)


def measure(plan: series.Plan, folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Prune a network for a short while, unless that was done, and time it."""
    cell, block = matrix.CELLS[plan["cell"]], plan["block"]
    out = cache / "kernels" / f"{plan['cell']}-{plan['compression']:g}x-{block or 'single'}"
    if not (out / REPORT_JSON).is_file():
        ltp_pipeline.run(
            matrix.dense(plan["cell"], 0, folders, cache),
            out=out,
            data=datasets.data_settings(cell.source, cell.pruned_with, folders, cache),
            budget={"target_compression": plan["compression"]},
            train={**SHORT, "seed": 0},
            method={"block": block},
            baseline={"mode": "none"},
        )
    return timed(out)


def measure_run(plan: series.Plan, folder: Path) -> dict[str, Any]:
    """Time a run that is there."""
    return timed(folder / plan["run"])


def timed(run: Path) -> dict[str, Any]:
    """The pruned network of a run, with every layer turned over that can be, beside its dense deploy form."""
    report = read_write.read(run / REPORT_JSON)
    model = read_model_file(run / report.pruned.files[0].path).model  # with its weights unpacked
    names = [kernel.name for kernel in find_layer_weights(model)]
    model, _ = deploy.rewrite_model(model, names)
    rng = np.random.default_rng(0)
    feeds = {
        value.name: rng.standard_normal(
            [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in model.graph.input
        if value.name not in model.tensors
    }
    kernels, plan = library.sparse_ops_library(), Plan(run.name, ())
    chosen = select_layers(
        model,
        names,
        feeds,
        library.query_instruction_sets(kernels).chosen,
        accelerate_min_sparsity=0.0,
    ).weight_names
    result = row(plan, model, list(chosen), feeds, session(model, plan, None), kernels, ROUNDS)
    densities = [layer.density for layer in report.layers if layer.density is not None]
    return {
        **{key: result[key] for key in TAKEN},
        "kernels": len(names),
        "sparsity": report.pruned.sparsity,
        "kept_by_layers": [min(densities), max(densities)],
        "accuracy": report.pruned.value,
    }


if __name__ == "__main__":
    main()
