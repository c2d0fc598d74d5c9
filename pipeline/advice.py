"""What would help most where a gate failed: the layer, the setting or the command, from the report alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ltp_pipeline.lookup import get, listed, number

if TYPE_CHECKING:
    from ltp_pipeline.config import GateSettings
    from ltp_pipeline.gates import Verdict

Report = Mapping[str, Any]
INSTEAD = ("target_sparsity", "accuracy_budget", "method.lambda")  # what a target compression would contradict


def on(verdict: Verdict, report: Report, gates: GateSettings) -> str:
    """One line for a gate that failed."""
    if verdict.value is None:
        if verdict.name == "beat_baseline":
            return "run it again with the baseline: without --no-baseline, or baseline.enabled = true"
        return "it was not measured: run the same command again with this version"
    limit = verdict.limit if isinstance(verdict.limit, int | float) else 0.0
    if gates.confidence is not None and _holds(verdict.name, verdict.value, limit):
        samples = get(report, "pruned", "accuracy", "samples")
        return f"the value itself is within the limit: measure on more than {samples} test samples, or drop confidence"
    return ADVICE[verdict.name](report, limit, gates)


def _holds(name: str, value: float, limit: float) -> bool:
    """Whether the value is on the right side, so that only its interval is not."""
    held = {"max_drop": value <= limit, "min_accuracy": value >= limit, "beat_baseline": value > limit}
    return held.get(name, False)


def _max_drop(report: Report, limit: float, gates: GateSettings) -> str:
    original = number(report, "original", "accuracy", "top1")
    return _more_accurate(report, None if original is None else original - limit, gates)


def _min_accuracy(report: Report, limit: float, gates: GateSettings) -> str:
    original = number(report, "original", "accuracy", "top1")
    if original is not None and original < limit:
        return f"the original itself has {original:.2%}: train it further, or lower the limit"
    return _more_accurate(report, limit, gates)


def _more_accurate(report: Report, least: float | None, gates: GateSettings) -> str:
    """A file without rounding, else a milder entry of the trail, else more training."""
    if least is None:
        return _train_longer(report)
    files = listed(report, "pruned", "files")
    rounded = [f for f in files if get(f, "values") not in (None, "exact")]
    exact = [f for f in files if f not in rounded]
    if rounded and exact and min(number(f, "accuracy", "top1") or 0.0 for f in exact) >= least:
        weakest = min(rounded, key=lambda f: number(f, "accuracy", "top1") or 0.0)
        return f"{weakest.get('path')} is below the bar because its values are rounded: set export.values = 'exact'"
    now = number(report, "pruned", "compression") or math.inf
    lowest = max(gates.min_compression or 1.0, 1 / (1 - (gates.min_sparsity or 0.0)))
    milder = [e for e in _trail(report) if lowest <= e["compression"] < now]
    good = [e for e in milder if e["accuracy"] >= least]
    if good:
        best = max(good, key=lambda e: e["compression"])
        return f"{_pick(best)}, {best['accuracy']:.2%} on the validation split before fine-tuning"
    if milder:
        best = max(milder, key=lambda e: e["accuracy"])
        return f"{_train_longer(report)}, or a milder network: {_pick(best)}"
    return _train_longer(report)


def _train_longer(report: Report) -> str:
    epochs = get(report, "pruned", "epochs") or {}
    longer = "train for more epochs"
    if epochs:
        longer += f" (--epochs was {epochs.get('prune')}, --finetune-epochs {epochs.get('finetune')})"
    labelled = report.get("metric", "top-1") == "top-1"  # without labels all is learned from the original already
    return (
        f"{longer} or train.distill = 0.5" if labelled and not get(report, "settings", "train", "distill") else longer
    )


def _min_sparsity(report: Report, limit: float, gates: GateSettings) -> str:
    return _min_compression(report, 1 / (1 - limit), gates)


def _min_compression(report: Report, limit: float, _: GateSettings) -> str:
    """Excluded layers where they alone are too many, else an entry of the trail, else the budget."""
    elements = number(report, "model", "kernel_elements")
    unpruned = [layer for layer in listed(report, "layers") if layer.get("prunable") is False]
    stay = sum(number(layer, "nonzeros") or 0 for layer in unpruned)
    if elements and stay > elements / limit:
        return f"{_largest(unpruned, elements, 'kernel weights')}: no budget reaches {limit:.4g}× while it stays so"
    return _sparser(report, limit)


def _min_model_compression(report: Report, limit: float, _: GateSettings) -> str:
    """Tensors that are not pruned where they alone are too many, else the budget that is left for the kernels."""
    kernels, floats = (number(report, "model", key) for key in ("kernel_elements", "float_elements"))
    nonzeros, ratio = (number(report, "pruned", key) for key in ("nonzeros", "model_compression"))
    if not (kernels and floats and ratio) or nonzeros is None:
        return _sparser(report, limit)
    layers = [layer for layer in listed(report, "layers") if layer.get("prunable") is False]
    fixed = floats / ratio - nonzeros + sum(number(layer, "nonzeros") or 0 for layer in layers)
    if fixed >= floats / limit:
        worst = _largest([*layers, *listed(report, "model", "other_weights")], floats, "weights")
        return f"{worst}: with all that is not pruned, no budget reaches more than {floats / max(fixed, 1):.3g}×"
    allowed = floats / limit - (floats / ratio - nonzeros)  # nonzeros that kernels may have
    return _sparser(report, kernels / allowed)


def _sparser(report: Report, compression: float) -> str:
    wanted = math.ceil(100 * compression) / 100
    given = {**(get(report, "settings", "budget") or {}), "method.lambda": get(report, "settings", "method", "lambda")}
    instead = next((name for name in INSTEAD if given.get(name) is not None), None)
    budget = f"set budget.target_compression = {wanted:g}{f' in place of {instead}' if instead else ''}"
    sparser = [e for e in _trail(report) if e["compression"] >= compression]
    return f"{_pick(min(sparser, key=lambda e: e['compression']))}; or {budget}" if sparser else budget


def _largest(tensors: Sequence[Mapping[str, Any]], whole: float, of: str) -> str:
    if not tensors:
        return f"{of} that are not pruned are too many"
    one = max(tensors, key=lambda t: number(t, "elements") or 0)
    why = one.get("reason") or "it is no kernel"
    return f"{one.get('name')} has {number(one, 'elements') or 0:,} of the {whole:,} {of} and is not pruned ({why})"


def _beat_baseline(report: Report, _: float, __: GateSettings) -> str:
    interval = get(report, "difference", "interval")
    if isinstance(interval, list) and len(interval) == 2 and interval[0] <= 0 <= interval[1]:
        samples = get(report, "pruned", "accuracy", "samples")
        return f"the difference may be chance on {samples} test samples: give more; else {_train_longer(report)}"
    return _train_longer(report)


def _max_bytes(report: Report, limit: float, _: GateSettings) -> str:
    """What is not pruned where that alone is too large, else the packed format, else rounded values, else fewer."""
    files = listed(report, "pruned", "files")
    floats, kernels = (number(report, "model", key) for key in ("float_elements", "kernel_elements"))
    dense = 0.0 if not floats or not kernels else (number(report, "original", "bytes") or 0) * (1 - kernels / floats)
    if floats and dense > limit:
        return _largest(listed(report, "model", "other_weights"), floats, "weights")
    if not any("packed" in str(f.get("format")) for f in files):
        return "add the packed format: `ltp-pipeline export RUN --format packed`"
    if all(f.get("values") in (None, "exact") for f in files):
        return "round the values of packed files: `ltp-pipeline export RUN --values fp16`, or int8"
    now = number(report, "pruned", "compression")
    smallest = min((size for f in files if (size := number(f, "bytes"))), default=limit)
    return _sparser(report, (now or 1.0) * smallest / limit)


def _max_latency_ratio(report: Report, limit: float, _: GateSettings) -> str:
    del report, limit
    return "zeros do not change latency: measure on an idle machine, or leave out the format of the slowest file"


def _per_layer_floor(report: Report, limit: float, _: GateSettings) -> str:
    shares = [
        (nonzeros / elements, layer)
        for layer in listed(report, "layers")
        if (elements := number(layer, "elements")) and (nonzeros := number(layer, "nonzeros")) is not None
    ]
    layer = min(shares, key=lambda pair: pair[0], default=(0.0, {}))[1]
    floor = get(report, "settings", "method", "floor")
    return f"set method.floor = {limit:g} (it is {floor}), or exclude {layer.get('name')} from pruning"


ADVICE: dict[str, Callable[[Report, float, GateSettings], str]] = {
    "min_accuracy": _min_accuracy,
    "max_drop": _max_drop,
    "min_sparsity": _min_sparsity,
    "min_compression": _min_compression,
    "min_model_compression": _min_model_compression,
    "beat_baseline": _beat_baseline,
    "max_bytes": _max_bytes,
    "max_latency_ratio": _max_latency_ratio,
    "per_layer_floor": _per_layer_floor,
}


def _trail(report: Report) -> list[Mapping[str, Any]]:
    """Entries that another network could be made of."""
    entries = listed(report, "trail")
    return [e for e in entries if not e.get("chosen") and None not in (number(e, "compression"), number(e, "accuracy"))]


def _pick(entry: Mapping[str, Any]) -> str:
    nth = entry.get("entry")
    return f"`ltp-pipeline pick RUN {nth}` finishes entry {nth} of the trail ({entry['compression']:.4g}×)"
