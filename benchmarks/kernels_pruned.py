"""Measure the latency of pruned networks on sparse operators, whose layers differ in density.

    python -m benchmarks.kernels_pruned [--out FILE] [--runs FOLDER] [--cifar FOLDER] [--data
    FOLDER] [cells...]

The networks are ResNet20 and a wide form of the small ResNet of benchmarks/matrix.py. They are
pruned in so few epochs that only the densities of their layers are meaningful, not their accuracy.
With --runs, every run directory in a folder is measured instead, such as those of
benchmarks/blocks.py. Each network runs with one sample on one thread, alternating with its dense
deploy graph.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ltp_pipeline
from benchmarks import datasets, matrix, series
from benchmarks.kernels import Plan, compare_networks, make_session
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
QUICK = {"cell": "mlp", "compression": 10, "block": None}  # its dense network trains in seconds
SHORT = {"epochs": 2, "finetune_epochs": 1}
MEASUREMENTS = (
    "layers",
    "ms",
    "dense_ms",
    "ratio",
    "ratio_of_shortest",
    "multiply_adds_left",
    "relative_error",
)


def main() -> None:
    """Measure the selected cells, or the run directories of a folder."""
    parser = matrix.make_parser(__doc__, CELLS)
    parser.add_argument(
        "--runs", type=Path, help="measure all run directories in this folder instead"
    )
    options = matrix.complete_options(parser.parse_args(), CELLS)
    measure: series.Measure
    plans: list[series.Plan] = [
        {"cell": cell, "compression": c, "block": block}
        for cell in options.cells
        for c in COMPRESSIONS
        for block in BLOCKS
    ]
    if options.quick:
        plans = [QUICK]
    out = "benchmarks/results/kernels_pruned.json"
    about = {"command": f"python -m benchmarks.kernels_pruned --out {out}"}
    measure = partial(measure_plan, folders=options.folders, cache=options.cache)
    if options.runs is not None:
        plans = [
            {"run": folder.name} for folder in sorted(options.runs.iterdir()) if folder.is_dir()
        ]
        about = {"command": "python -m benchmarks.kernels_pruned --runs FOLDER"}
        measure = partial(measure_run, folder=options.runs)
    series.run_plans(plans, measure, options.out, about, options.workers)


def measure_plan(plan: series.Plan, folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Measure a pruned network; prune it first if it has no run directory."""
    cell, block = matrix.CELLS[plan["cell"]], plan["block"]
    out = cache / "kernels" / f"{plan['cell']}-{plan['compression']:g}x-{block or 'single'}"
    if not (out / REPORT_JSON).is_file():
        ltp_pipeline.run(
            matrix.load_dense(plan["cell"], 0, folders, cache),
            out=out,
            data=datasets.data_settings(cell.source, cell.pruned_with, folders, cache),
            budget={"target_compression": plan["compression"]},
            train={**SHORT, "seed": 0},
            method={"block": block},
            baseline={"mode": "none"},
        )
    return time_run(out)


def measure_run(plan: series.Plan, folder: Path) -> dict[str, Any]:
    """Measure the network of an existing run directory."""
    return time_run(folder / plan["run"])


def time_run(run: Path) -> dict[str, Any]:
    """Compare the pruned network of a run with its dense deploy graph.

    Every layer that can be converted to a sparse operator is converted.
    """
    report = read_write.read(run / REPORT_JSON)
    model = read_model_file(run / report.pruned.files[0].path).model  # its weights are decoded
    names = [layer.name for layer in find_layer_weights(model)]
    model, _ = deploy.rewrite_model(model, names)
    rng = np.random.default_rng(0)
    feeds = {
        value.name: rng.standard_normal(
            [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in model.graph.input
        if value.name not in model.tensors
    }
    operators, plan = library.sparse_ops_library(), Plan(run.name, ())
    selected = select_layers(
        model,
        names,
        feeds,
        library.query_instruction_sets(operators).chosen,
        min_sparsity=0.0,
    ).weight_names
    dense = make_session(model, plan, None)
    result = compare_networks(plan, model, list(selected), feeds, dense, operators, ROUNDS)
    densities = [layer.density for layer in report.layers if layer.density is not None]
    return {
        **{key: result[key] for key in MEASUREMENTS},
        "kernels": len(names),
        "sparsity": report.pruned.sparsity,
        "kept_by_layers": [min(densities), max(densities)],
        "accuracy": report.pruned.value,
    }


if __name__ == "__main__":
    main()
