"""What int8 files lose beside the pruned float files of the same runs, at 10×.

    python -m benchmarks.int8_drop [--quick] [--out FILE] [--workers 2] [cells...]

Cells, data and dense networks are those of benchmarks/matrix.py; nothing is set but the target, the
seed and the formats. Each run is exported as packed, as int8 with weights of 7 bits (the default)
and of 8, and as int8 trained in 8 bits (`train.quantization_aware`). All files are measured on the
whole test split in onnxruntime.
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
    """Measure all cells."""
    options = matrix.parse(__doc__, CELLS)
    plans = [
        {"cell": cell, "compression": COMPRESSION, "seed": seed}
        for cell in options.cells
        for seed in options.seeds or matrix.CELLS[cell].seeds
    ]
    if options.quick:
        plans = [{"cell": "mlp", "compression": COMPRESSION, "seed": 0}]
    about = {"command": "python -m benchmarks.int8_drop --out benchmarks/results/int8_drop.json"}
    at_work = partial(measure, folders=options.folders, cache=options.cache)
    series.run(plans, at_work, options.out, about, options.workers)


def measure(plan: series.Plan, folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Prune one network and write its files in every form; what is trained already is not trained again."""
    cell = matrix.CELLS[plan["cell"]]
    model = matrix.dense(plan["cell"], plan["seed"], folders, cache)
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
            part = files[INT8].quantization
            assert part is not None  # noqa: S101 - int8 was asked for
            result[name] = {
                "float": files[FLOAT].value,
                "int8": files[INT8].value,
                "method": part.method,
                "left_float": len(part.float_layers),
            }
    return result


if __name__ == "__main__":
    main()
