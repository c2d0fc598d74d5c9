"""A report and a training log as a small residual network would leave them."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from ltp_pipeline.gates.evaluation import evaluate_gates
from ltp_pipeline.results.complete import bound_size as size_bound
from ltp_pipeline.results.gain import TradeoffPoint, compute_gain
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema import Report
from ltp_pipeline.results.schema_parts import GateResult
from ltp_pipeline.results.values import PairedCounts
from ltp_pipeline.settings.schema import GateSettings

OTHERS = 2_000  # float weights outside kernels
HOSTILE = "<script>alert(1)</script>"


Shapes = list[tuple[str, str, tuple[int, ...]]]
# Of 10,000 samples 9,177 are right before; how many only before, and how many only after.
ORIGINAL_RIGHT = 9177
PRUNED, BASELINE, OF_DIFFERENCE = (335, 290), (461, 325), (453, 362)

SHAPES: Shapes = [
    ("stem.conv.weight", "Conv", (16, 3, 3, 3)),
    *[
        (f"stage1.block{b}.conv{c}.weight", "Conv", (16, 16, 3, 3))
        for b in (0, 1, 2)
        for c in (1, 2)
    ],
    ("stage2.block0.conv1.weight", "Conv", (32, 16, 3, 3)),
    ("stage2.block0.shortcut.weight", "Conv", (32, 16, 1, 1)),
    *[(f"stage2.block{b}.conv{c}.weight", "Conv", (32, 32, 3, 3)) for b in (1, 2) for c in (1, 2)],
    (HOSTILE, "Conv", (32, 32, 3, 3)),
    ("stage3.block0.conv1.weight", "Conv", (64, 32, 3, 3)),
    ("stage3.block0.shortcut.weight", "Conv", (64, 32, 1, 1)),
    *[(f"stage3.block{b}.conv{c}.weight", "Conv", (64, 64, 3, 3)) for b in (1, 2) for c in (1, 2)],
    ("head.fc.weight", "Gemm", (10, 64)),
]


def report_of(content: dict[str, Any]) -> Report:
    """Return the report that reading this content gives."""
    return Report.model_validate_json(json.dumps(content))


def sample(
    baseline: bool = True, shapes: Shapes = SHAPES
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return report and log of a passed run of a network with these layers; the baseline is optional."""
    rng = np.random.default_rng(0)
    layers = _layers(rng, baseline, shapes)
    elements = sum(x["elements"] for x in layers)
    nonzeros = sum(x["nonzeros"] for x in layers)
    baseline_nonzeros = sum(x["baseline_nonzeros"] for x in layers) if baseline else 0
    report = {
        "schema": "ltp-report/1",
        "status": "passed",
        "gates": [
            {"name": "max_drop", "limit": 0.01, "value": 0.0045, "passed": True, "detail": ""},
            {
                "name": "min_compression",
                "limit": 5.0,
                "value": elements / nonzeros,
                "passed": True,
                "detail": "",
            },
        ],
        "metric": {"name": "top-1", "unit": None, "higher_is_better": True, "is_fraction": True},
        "task": {"kind": "classification", "output": "logits", "class_axis": 1, "threshold": None},
        "model": {
            "path": "model.onnx",
            "sha256": "a" * 64,
            "opset": 17,
            "num_layers": len(layers),
            "layer_elements": elements,
            "macs": sum(x["uses"] * x["elements"] for x in layers),
            "float_elements": elements + OTHERS,
            "largest_other_weights": [
                {"name": "stage3.bn.weight", "elements": 64},
                {"name": "head.fc.bias", "elements": 10},
            ],
            "name": "resnet20 <small>",
        },
        "original": {
            "accuracy": _accuracy(0.9177),
            "bytes": 1_102_345,
            "latency": [{"batch": 16, "threads": 2, "ms": 1.92}],
            "path": "model.onnx",
            "reasons": {},
        },
        "pruned": {
            **_pruned(0.9132, elements, nonzeros, ("sparse", "packed"), "", PRUNED),
            "macs_left": _macs_left(layers, "nonzeros"),
            "drop_interval": interval_of(make_outcomes(ORIGINAL_RIGHT, *PRUNED)),
        },
        "baseline": {
            "method": "global-magnitude",
            **_pruned(0.9041, elements, baseline_nonzeros, ("packed",), "baseline.", BASELINE),
            "macs_left": _macs_left(layers, "baseline_nonzeros"),
            "drop_interval": interval_of(make_outcomes(ORIGINAL_RIGHT, *BASELINE)),
            **_curve(elements / nonzeros, elements / baseline_nonzeros, elements),
        }
        if baseline
        else None,
        "reasons": {} if baseline else {"baseline": "not asked for: --no-baseline"},
        "difference": _difference() if baseline else None,
        "layers": layers,
        "trail": _trail(rng),
        "data": {
            "path": "images.npz",
            "classes": 10,
            "splits": {"train": 45000, "val": 5000, "test": 10000},
            "notes": ["no val part in the file: 10 % of train was split off by seed"],
        },
        "settings": {
            "data": {
                "path": "images.npz",
                "mean": [0.49, 0.48, 0.45],
                "std": [0.25, 0.24, 0.26],
                "layout": "NCHW",
            },
            "budget": {"target_compression": 8, "target_sparsity": None},
            "train": {"epochs": 12, "finetune_epochs": 6, "batch_size": 128, "lr": 0.03, "seed": 0},
            "export": {"formats": ["sparse", "packed"]},
            "gates": {"max_drop": 0.01, "min_compression": 5.0},
        },
        "environment": {
            "versions": {
                "ltp-pipeline": "0.1.0",
                "python": "3.11.7",
                "torch": "2.6.0",
                "onnxruntime": "1.20.1",
            },
            "platform": "Linux-6.1-x86_64",
            "threads": 2,
            "device": "cpu",
            "seed": 0,
        },
        "timings": {
            "import": 1.4,
            "learn": 412.7,
            "prune": 0.3,
            "finetune": 180.2,
            "export": 0.9,
            "baseline": 590.1,
        },
        "notes": ["2 nodes were folded into constants before training"],
        "histograms": _histograms(rng, layers),
        "scatter": _scatter(rng, layers[-2]),
        "sizes": {
            "original": 1_102_345,
            "sparse": 318_840,
            "packed": 131_072,
            "raw_values_bound": size_bound(1_102_345, elements, nonzeros),
        },
    }
    return report, _log(layers, baseline)


def make_outcomes(right: int, before: int, after: int) -> dict[str, int]:
    """Return paired counts of 10,000 samples."""
    both = right - before
    return {
        "both_correct": both,
        "only_first_correct": before,
        "only_second_correct": after,
        "both_incorrect": 10000 - both - before - after,
    }


def interval_of(counts: dict[str, int]) -> list[float]:
    interval = PairedCounts(**counts).compute_interval()
    assert interval is not None
    return list(interval)


def _difference() -> dict[str, Any]:
    counts = make_outcomes(ORIGINAL_RIGHT - PRUNED[0] + PRUNED[1], *OF_DIFFERENCE)
    return {"value": 0.0091, "interval": interval_of(counts), "paired_counts": counts}


def _curve(compression: float, first: float, elements: int) -> dict[str, Any]:
    """Return a baseline curve that has the accuracy of 91.32 % between its second and third point."""
    second, third = (elements / round(elements / rate) for rate in (3.2, 5.1))
    points = [
        TradeoffPoint(first, 0.9041),
        TradeoffPoint(second, 0.9160),
        TradeoffPoint(third, 0.9120),
    ]
    paths = [
        "model.baseline.packed.onnx",
        "baseline/2/model.packed.onnx",
        "baseline/3/model.packed.onnx",
    ]
    digests = [
        hex(hash_like(name))[2:].zfill(64) for name in ("baseline.packed", "second", "third")
    ]
    over = compute_gain(Metric(), compression, 0.9132, points, interpolate=True)
    return {
        "num_trainings": 3,
        "curve": [
            {
                "compression": p.compression,
                "accuracy": p.value,
                "validation_accuracy": p.value + 0.001,
                "nonzeros": round(elements / p.compression),
                "path": path,
                "sha256": digest,
            }
            for p, path, digest in zip(points, paths, digests, strict=True)
        ],
        "compression_at_equal_accuracy": over.compression_at_equal_accuracy,
        "gain": over.value,
        "gain_bound": None,
    }


def one_point(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report with a baseline of one measured point."""
    unknown = dict.fromkeys(("curve", "compression_at_equal_accuracy", "gain"))
    reasons = dict.fromkeys(unknown, "one point of the baseline was measured")
    return report | {
        "baseline": report["baseline"] | unknown | {"reasons": reasons, "num_trainings": 1}
    }


def with_bounded_gain(
    report: dict[str, Any], bound: str | None, gain: float, why: str = "the curve ends before"
) -> dict[str, Any]:
    """Return the report with a gain that has one bound only."""
    reasons = {"compression_at_equal_accuracy": why}
    bounds = {
        "gain": gain,
        "gain_bound": bound,
        "compression_at_equal_accuracy": None,
        "reasons": reasons,
    }
    return report | {"baseline": report["baseline"] | bounds}


def _macs_left(layers: list[dict[str, Any]], key: str) -> float:
    total = sum(layer["uses"] * layer["elements"] for layer in layers)
    return sum(layer["uses"] * layer[key] for layer in layers) / total


def _accuracy(top1: float) -> dict[str, Any]:
    return {
        "value": top1,
        "top1": top1,
        "top5": min(1.0, top1 + 0.08),
        "samples": 10000,
        "split": "test",
    }


def _pruned(
    top1: float,
    elements: int,
    nonzeros: int,
    formats: tuple[str, ...],
    prefix: str,
    apart: tuple[int, int],
) -> dict[str, Any]:
    sizes = {"sparse": 318_840, "packed": 131_072}
    return {
        "accuracy": _accuracy(top1),
        "drop": round(0.9177 - top1, 6),
        "compression": elements / nonzeros,
        "model_compression": (elements + OTHERS) / (nonzeros + OTHERS),
        "sparsity": 1 - nonzeros / elements,
        "nonzeros": nonzeros,
        "model_nonzeros": nonzeros + OTHERS,
        "epochs": {"prune": 0 if prefix else 12, "finetune": 18 if prefix else 6},
        "num_trainings": 1,
        "files": [
            {
                "graph": "original",
                "encoding": name,
                "weight_storage": "exact",
                "path": f"model.{prefix}{name}.onnx",
                "sha256": hex(hash_like(prefix + name))[2:].zfill(64),
                "bytes": sizes[name],
                "nonzeros": nonzeros,
                "accuracy": _accuracy(top1),
                "paired_counts": make_outcomes(ORIGINAL_RIGHT, *apart),
                "parity_max_abs": 3.1e-6,
                "load_ms": 8.4,
                "latency": [
                    {
                        "batch": 16,
                        "threads": 2,
                        "ms": 1.95,
                        "original_ms": 1.92,
                        "ratio": 1.95 / 1.92,
                        "ratio_quartiles": [0.98, 1.06],
                    }
                ],
            }
            for name in formats
        ],
        "reasons": {},
    }


def hash_like(text: str) -> int:
    """Return a number as large as a hash that is the same in every process."""
    return int.from_bytes(text.encode() * 4, "big") % 2**256


def _layers(rng: np.random.Generator, baseline: bool, shapes: Shapes) -> list[dict[str, Any]]:
    layers = []
    for index, (name, op, shape) in enumerate(shapes):
        elements = int(np.prod(shape))
        first = index == 0
        nonzeros = (
            1.0
            if first
            else min(
                0.9, 60 / elements**0.75 + 0.3 * (1 - index / len(shapes)) * rng.uniform(0.6, 1)
            )
        )
        other = 1.0 if first else float(np.clip(0.16 * rng.lognormal(0, 0.7), 0, 0.9))
        layers.append(
            {
                "name": name,
                "op": op,
                "shape": list(shape),
                "elements": elements,
                "nonzeros": round(elements * nonzeros),
                "threshold": None if first else float(2e-4 * rng.lognormal(0, 0.8)),
                "temperature": None if first else 1e-3,
                "baseline_nonzeros": round(elements * other) if baseline else None,
                "uses": 1 if op == "MatMul" else 64 if name.endswith("conv1.weight") else 16,
                "prunable": not first,
                "reason": "excluded by --exclude 'stem.*'" if first else None,
            }
        )
    if baseline:  # the same number of nonzeros, shared out otherwise
        share = (sum(x["nonzeros"] for x in layers) - layers[0]["elements"]) / (
            sum(x["baseline_nonzeros"] for x in layers) - layers[0]["elements"]
        )
        for layer in layers[1:]:
            layer["baseline_nonzeros"] = round(layer["baseline_nonzeros"] * share)
    return layers


def _trail(rng: np.random.Generator) -> list[dict[str, Any]]:
    return [
        {
            "entry": i,
            "epoch": i,
            "compression": float(1.35**i),
            "model_compression": float(1.3**i),
            "macs_left": float(1.2**-i),
            "accuracy": float(0.915 - 0.0004 * 1.5**i + rng.normal(0, 0.0012)),
            "file": f"trail/{i:03}.onnx",
            "selected": i == 7,
        }
        for i in range(1, 11)
    ]


def _histograms(rng: np.random.Generator, layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    interval = []
    for layer in sorted((x for x in layers if x["prunable"]), key=lambda x: -x["elements"])[:6]:
        before = np.abs(rng.normal(0, 0.03, layer["elements"]))
        after = before[before**2 > layer["threshold"]] * 1.1
        edges = np.linspace(0, before.max() * 1.1, 41)
        interval.append(
            {
                "name": layer["name"],
                "threshold": layer["threshold"],
                "edges": edges.tolist(),
                "before": np.histogram(before, edges)[0].tolist(),
                "after": np.histogram(after, edges)[0].tolist(),
            }
        )
    return interval


def _scatter(rng: np.random.Generator, layer: dict[str, Any]) -> dict[str, Any]:
    before = rng.normal(0, 0.03, 2500) ** 2
    moved = before * rng.lognormal(0.1, 0.6, 2500)
    after = np.where(
        moved > layer["threshold"], moved, np.where(rng.random(2500) < 0.5, 0, moved * 0.01)
    )
    return {
        "name": layer["name"],
        "threshold": layer["threshold"],
        "before": before.tolist(),
        "after": after.tolist(),
    }


def _log(layers: list[dict[str, Any]], baseline: bool) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    lines: list[dict[str, Any]] = []
    for stage, steps in (
        ("learn", 240),
        ("finetune-007", 120),
        *((("baseline", 360),) if baseline else ()),
    ):
        for step in range(0, steps, 2):
            share = step / steps
            line: dict[str, Any] = {
                "stage": stage,
                "epoch": step // 20,
                "step": step,
                "loss": 0.12 + 0.5 * np.exp(-4 * share) + abs(rng.normal(0, 0.03)),
                "lr": 0.03 * (1 + np.cos(np.pi * share)) / 2,
                "kept": 1 - 0.88 * min(1.0, 1.4 * share) if stage == "learn" else 0.12,
                "lambda": 1e-6 * 10 ** (3 * share) if stage == "learn" else None,
            }
            if stage == "learn":
                line["thresholds"] = {
                    x["name"]: x["threshold"] * (1 - np.exp(-5 * (share + 0.01)))
                    for x in layers
                    if x["prunable"]
                }
            if step % 20 == 18:
                line["val_accuracy"] = 0.88 + 0.03 * share
            lines.append(
                {k: float(v) if isinstance(v, np.floating) else v for k, v in line.items()}
            )
    return lines


def evaluate_report(report: dict[str, Any], gates: GateSettings) -> list[GateResult]:
    return evaluate_gates(report_of(report), gates)


def in_celsius() -> dict[str, Any]:
    """Return a report whose metric is the mean absolute error in °C, lower is better.

    top-1 of 91.77, 91.32 and 90.41 % become 2.5823, 2.5868 and 2.5959 °C.
    """
    report = in_metric(sample()[0], lambda value: 3.5 - value)
    report["pruned"]["drop_interval"] = [-0.0004, 0.0094]
    report["baseline"]["drop_interval"] = [0.0081, 0.0191]
    report["difference"]["interval"] = [0.0035, 0.0147]
    report["metric"] = {
        "name": "MAE",
        "unit": "°C",
        "higher_is_better": False,
        "is_fraction": False,
    }
    report["task"] = {"kind": "custom", "output": "logits", "class_axis": None, "threshold": None}
    report["custom_task"] = {"name": "task.py", "sha256": "c" * 64}
    return report


def with_value(network: dict[str, Any], value: float) -> None:
    """Set the accuracy of a network and its files."""
    for part in (network, *network["files"]):
        top5 = max(value, part["accuracy"]["top5"])
        part["accuracy"] = part["accuracy"] | {"value": value, "top1": value, "top5": top5}


def in_metric(report: dict[str, Any], value: Callable[[float], float]) -> dict[str, Any]:
    """Return the report with every value of the metric mapped; drops and intervals stay."""
    networks = [
        report["original"],
        report["pruned"],
        *([report["baseline"]] if report["baseline"] else []),
    ]
    for part in [*networks, *(file for network in networks[1:] for file in network["files"])]:
        accuracy = part["accuracy"]
        part["accuracy"] = accuracy | {
            "value": value(accuracy["value"]),
            "top1": None,
            "top5": None,
        }
        part |= {"paired_counts": None} if "paired_counts" in part else {}
    if report["difference"]:
        report["difference"]["paired_counts"] = None
    curve = (report["baseline"] or {}).get("curve") or []
    for point in [*report["trail"], *curve]:
        point["accuracy"] = value(point["accuracy"])
    for point in curve:
        point["validation_accuracy"] = value(point["validation_accuracy"])
    return report
