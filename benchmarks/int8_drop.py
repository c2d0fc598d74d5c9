"""Compare the accuracy of int8 files with the pruned float files of the same runs, at 10×.

    python -m benchmarks.int8_drop [--quick] [--out FILE] [--workers 2] [cells...]

Cells, data and dense networks are those of benchmarks/matrix.py. Only the target, the seed and the
formats are set. Each run is exported as packed, as int8 with the reduced range of 7 bits (the
default), as int8 with the full range of 8 bits, and as int8 after quantization-aware training
(`train.quantization_aware`). All files are evaluated on the entire test split in onnxruntime.
"""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ltp_pipeline
from benchmarks import datasets, matrix, series

COMPRESSION = 10
FLOAT, INT8 = "packed", "int8-packed"
CELLS = ("resnet", "mobilenet", "languages")
FORMS: dict[str, dict[str, dict[str, Any]]] = {
    "7 bits": {},
    "8 bits": {"export": {"int8_reduce_range": False}},
    "trained": {"train": {"quantization_aware": True}},
}


def main() -> None:
    """Measure the selected cells."""
    options = matrix.parse_options(__doc__, CELLS)
    plans = [
        {"cell": cell, "compression": COMPRESSION, "seed": seed}
        for cell in options.cells
        for seed in options.seeds or matrix.CELLS[cell].seeds
    ]
    if options.quick:
        plans = [{"cell": "mlp", "compression": COMPRESSION, "seed": 0}]
    about = {"command": "python -m benchmarks.int8_drop --out benchmarks/results/int8_drop.json"}
    measure = partial(measure_plan, folders=options.folders, cache=options.cache)
    series.run_plans(plans, measure, options.out, about, options.workers)


def measure_plan(plan: series.Plan, folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Prune a network and return the accuracies of its files; later forms resume the run."""
    cell = matrix.CELLS[plan["cell"]]
    model = matrix.load_dense(plan["cell"], plan["seed"], folders, cache)
    data = datasets.data_settings(cell.source, cell.pruned_with, folders, cache)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, form in FORMS.items():
            report = ltp_pipeline.run(
                model,
                out=Path(scratch) / "run",
                data=data,
                budget={"target_compression": plan["compression"]},
                baseline={"mode": "none"},
                train={"seed": plan["seed"], **form.get("train", {})},
                export={"formats": (FLOAT, INT8), **form.get("export", {})},
            ).report
            files = {file.name: file for file in report.pruned.files}
            quantization = files[INT8].quantization
            assert quantization is not None  # noqa: S101 - an int8 file was requested
            result[name] = {
                "float": files[FLOAT].value,
                "int8": files[INT8].value,
                "method": quantization.method,
                "left_float": len(quantization.float_layers),
            }
    return result


if __name__ == "__main__":
    main()
