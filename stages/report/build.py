"""report.json from what the stages measured; nothing is computed here that could be measured elsewhere."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline import exporters
from ltp_pipeline.data import recipe
from ltp_pipeline.files import label
from ltp_pipeline.report_schema import SCHEMA
from ltp_pipeline.stages.report.intervals import paired_interval

if TYPE_CHECKING:
    from ltp_pipeline.config import Settings
    from ltp_pipeline.data import Data
    from ltp_pipeline.records import Array, Learned, Measured, Original, TrailEntry
    from ltp_pipeline.stages.import_model.network import Network

LIBRARIES = ("ltp-pipeline", "torch", "onnx", "onnxruntime", "onnxsim", "numpy")
HISTOGRAMS = 6
BINS = 60
SCATTER_POINTS = 3000
OTHERS = 5


@dataclass(frozen=True)
class Findings:
    """Everything a report is made of."""

    network: Network
    data: Data
    settings: Settings
    original: Original
    learned: Learned
    chosen: TrailEntry
    pruned: Measured
    baseline: Measured | None
    weights: WeightPictures
    device: str
    metric: str
    timings: Mapping[str, float]
    notes: Sequence[str]
    budget_missed: str | None = None
    no_baseline: str | None = None  # why there is none


@dataclass(frozen=True)
class WeightPictures:
    """What the pictures of single layers need, taken before the live weights change again."""

    histograms: list[dict[str, Any]]
    scatter: dict[str, Any] | None


def build(f: Findings) -> dict[str, Any]:
    """The report without its gates."""
    model = f.network.file
    pruned = _measured(f.pruned, f.original)
    gain = _unlikely_gain(pruned)
    return {
        "schema": SCHEMA,
        "verdict": "not-gated",
        "gates": [],
        "metric": f.metric,
        "model": {
            "name": model.path.name if model.path else "model",
            "path": str(model.path) if model.path else None,
            "sha256": model.sha256,
            "opset": model.opset,
            "kernels": len(f.network.kernels),
            "kernel_elements": sum(k.elements for k in f.network.kernels),
            "float_elements": f.pruned.fullest.whole.elements,
            "other_weights": _other_weights(f.network),
            "data": list(model.data),
            "inputs": [asdict(i) for i in model.inputs],
            "outputs": [asdict(o) for o in model.outputs],
        },
        "data": {
            "path": str(f.settings.data.path),
            "classes": f.data.classes,
            "splits": {name: len(split) for name, split in _splits(f.data).items()},
            "sample_shape": list(next(iter(f.data.test.first(1).inputs.values())).shape[1:]),
            "notes": list(f.data.notes),
            "preparation": list(f.data.steps),
            "recipe": recipe.of_data(f.data).plain(),
            "class_names": None if f.data.class_names is None else list(f.data.class_names),
        },
        "original": {
            "path": str(model.path) if model.path else None,
            "accuracy": asdict(f.original.accuracy),
            "bytes": model.bytes,
            "latency_ms": f.original.latency_ms,
            "load_ms": f.original.load_ms,
        },
        "pruned": pruned,
        "baseline": {"method": "global-magnitude", **_measured(f.baseline, f.original)} if f.baseline else None,
        "baseline_reason": f.no_baseline,
        "difference": _difference(f.pruned, f.baseline),
        "layers": _layers(f),
        "trail": [{**_trail_row(e), "chosen": e.entry == f.chosen.entry} for e in f.learned.trail],
        "histograms": f.weights.histograms,
        "scatter": f.weights.scatter,
        "sizes": _sizes(f),
        "notes": [*f.network.notes, *f.notes, *([gain] if gain else []), *_file_notes(f.pruned, model.bytes)],
        "budget_missed": f.budget_missed,
        "unlikely_gain": gain,
        "settings": f.settings.model_dump(mode="json", by_alias=True),
        "environment": _environment(f),
        "timings": {stage: round(seconds, 3) for stage, seconds in f.timings.items()},
    }


def picture_weights(
    network: Network, before: Mapping[str, Array], after: Mapping[str, Array], thresholds: Mapping[str, float]
) -> WeightPictures:
    """Histograms of the largest layers, and the paper's scatter of w² for the largest of them."""
    largest = sorted(network.prunable, key=lambda k: -k.elements)[:HISTOGRAMS]
    histograms = []
    for kernel in largest:
        old, new = (np.abs(np.asarray(x[kernel.name], np.float64)).ravel() for x in (before, after))
        edges = np.linspace(0, max(old.max(), new.max(), 1e-12), BINS + 1)
        histograms.append(
            {
                "name": kernel.name,
                "threshold": thresholds.get(kernel.name),
                "edges": edges.tolist(),
                "before": np.histogram(old, edges)[0].tolist(),
                "after": np.histogram(new[new > 0], edges)[0].tolist(),
            }
        )
    if not largest:
        return WeightPictures([], None)
    name = largest[0].name
    rows = np.linspace(0, largest[0].elements - 1, min(SCATTER_POINTS, largest[0].elements)).astype(np.int64)
    squares = [(np.asarray(x[name], np.float64).ravel()[rows] ** 2).tolist() for x in (before, after)]
    scatter = {"name": name, "threshold": thresholds.get(name), "before": squares[0], "after": squares[1]}
    return WeightPictures(histograms, scatter)


def _other_weights(network: Network) -> list[dict[str, Any]]:
    kernels = {k.name for k in network.kernels}
    others = [(name, c.elements) for name, c in exporters.float_weights(network.file.proto) if name not in kernels]
    largest = sorted(others, key=lambda other: -other[1])[:OTHERS]
    return [{"name": name, "elements": elements} for name, elements in largest]


def _trail_row(entry: TrailEntry) -> dict[str, Any]:
    row = asdict(entry)
    del row["thresholds"], row["temperatures"]  # those of the chosen entry stand with the layers
    return row


def _splits(data: Data) -> dict[str, Any]:
    return {"train": data.train, "val": data.val, "test": data.test}


def _measured(m: Measured, original: Original) -> dict[str, Any]:
    first = m.fullest
    return {
        "accuracy": asdict(m.weakest.accuracy),
        "drop": original.accuracy.top1 - m.weakest.accuracy.top1,
        "drop_interval": list(paired_interval(original.correct, m.correct)),
        "compression": first.counted.compression,
        "model_compression": first.whole.compression,
        "sparsity": first.counted.sparsity,
        "nonzeros": first.counted.nonzeros,
        "epochs": dict(m.epochs),
        "files": [
            {
                "format": v.file.format,
                "values": v.file.values,
                "path": v.file.name,
                "sha256": v.file.sha256,
                "data_sha256": v.file.data_sha256,
                "bytes": v.file.bytes,
                "nonzeros": v.counted.nonzeros,
                "accuracy": asdict(v.accuracy),
                "parity_max_abs": v.parity_max_abs,
                "load_ms": v.load_ms,
                "latency_ms": v.latency_ms,
                "original_latency_ms": v.original_latency_ms,
            }
            for v in m.validations
        ],
    }


def _unlikely_gain(pruned: Mapping[str, Any]) -> str | None:
    """A warning where pruning seems to have made the network better, and not by chance."""
    low, high = pruned["drop_interval"]
    if high >= 0:
        return None
    return (
        f"the pruned network is better than the original by {-100 * high:.2f} to {-100 * low:.2f} points, which is no "
        "chance: it was trained further, or the labels or the preparation of samples do not fit the original; "
        "check both before you trust a gate on the drop"
    )


def _file_notes(m: Measured, original: int) -> list[str]:
    large = [v.file.name for v in m.validations if v.file.encoding != "dense" and v.file.bytes >= original]
    said = f"{', '.join(large)}: not smaller than the original, because so few zeros do not pay for writing places down"
    return [*dict.fromkeys(note for v in m.validations for note in v.file.notes), *([said] if large else [])]


def _difference(pruned: Measured, baseline: Measured | None) -> dict[str, Any] | None:
    if baseline is None:
        return None
    value = pruned.weakest.accuracy.top1 - baseline.weakest.accuracy.top1
    # paired_interval gives before - after: the baseline's misses that the learned network does not have
    return {"value": value, "interval": list(paired_interval(pruned.correct, baseline.correct))}


def _layers(f: Findings) -> list[dict[str, Any]]:
    baseline = f.baseline.fullest.nonzeros if f.baseline else {}
    return [
        {
            "name": k.name,
            "op": k.op,
            "shape": list(k.shape),
            "elements": k.elements,
            "nonzeros": f.pruned.fullest.nonzeros[k.name],
            "threshold": f.chosen.thresholds.get(k.name),
            "temperature": f.chosen.temperatures.get(k.name),
            "baseline_nonzeros": baseline.get(k.name),
            "prunable": k.prunable,
            "reason": k.reason,
        }
        for k in f.network.kernels
    ]


def _sizes(f: Findings) -> dict[str, int | None]:
    counted = f.pruned.fullest.counted
    others = f.network.file.bytes - 4 * counted.elements
    p = counted.nonzeros / counted.elements
    entropy = -(p * math.log2(p) + (1 - p) * math.log2(1 - p)) if 0 < p < 1 else 0.0
    bound = (counted.elements * entropy + 32 * counted.nonzeros) / 8 + max(others, 0)
    files = {label({"format": v.file.format, "values": v.file.values}): v.file.bytes for v in f.pruned.validations}
    return {"original": f.network.file.bytes, **files, "bound": math.ceil(bound)}


def _environment(f: Findings) -> dict[str, Any]:
    import torch

    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in LIBRARIES}},
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "device": f.device,
        "seed": f.settings.train.seed,
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
