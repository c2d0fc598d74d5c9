"""What would help most where a gate failed: the layer, the setting or the command, from the report alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ltp_pipeline.results.schema_parts import LayerResult

if TYPE_CHECKING:
    from ltp_pipeline.results.schema import Report
    from ltp_pipeline.results.schema_parts import GateResult, WeightInfo
    from ltp_pipeline.settings.schema import GateSettings

INSTEAD = (
    "target_sparsity",
    "accuracy_budget",
    "method.lambda",
)  # what a target compression would contradict

OF_BASELINE = "`ltp-pipeline handoff RUN --network baseline`"
ITSELF = "this network is the baseline of its run"  # why the report of a baseline has none


class SuggestedCandidate(NamedTuple):
    """An entry of the trail that another network could be made of."""

    entry: int
    compression: float
    accuracy: float

    @property
    def command(self) -> str:
        """How to finish it."""
        return f"`ltp-pipeline pick RUN {self.entry}` finishes entry {self.entry} of the trail ({self.compression:.4g}×)"


def suggest_fix(verdict: GateResult, report: Report, gates: GateSettings) -> str:
    """One line for a gate that failed."""
    if verdict.value is None:
        if (
            verdict.name in ("beat_baseline", "min_gain")
            and report.reasons.get("baseline") == ITSELF
        ):
            return f"drop the gate: {ITSELF}; the report of that run compares the two"
        if verdict.name == "beat_baseline":
            return (
                'run it again with the baseline: without --no-baseline, or baseline.mode = "quick"'
            )
        if verdict.name == "min_gain":
            return "run it again with the curve of the baseline: --baseline curve"
        if " " in verdict.name:
            return f"write the file with --export {verdict.name.split()[1]}, or drop the gate"
        return "it was not measured: run the same command again with this version"
    limit = verdict.limit if isinstance(verdict.limit, int | float) else 0.0
    if gates.confidence is not None and _holds(report, verdict.name, verdict.value, limit):
        samples = _samples(report)
        return f"the value itself is within the limit: measure on more than {samples} test samples, or drop confidence"
    return ADVICE[verdict.name.split()[0]](report, limit, gates)


def _holds(report: Report, name: str, value: float, limit: float) -> bool:
    """Whether the value is on the right side, so that only its interval is not."""
    accurate = report.metric.is_no_worse(value, limit)
    held = {"max_drop": value <= limit, "min_accuracy": accurate, "beat_baseline": value > limit}
    return held.get(name, False)


def _max_drop(report: Report, limit: float, gates: GateSettings) -> str:
    original = report.original.value
    return _more_accurate(
        report, None if original is None else report.metric.worst_allowed(original, limit), gates
    )


def _min_accuracy(report: Report, limit: float, gates: GateSettings) -> str:
    metric, original = report.metric, report.original.value
    if original is not None and not metric.is_no_worse(original, limit):
        return (
            f"the original itself has {metric.shown(original)}: train it further, or ask for less"
        )
    return _more_accurate(report, limit, gates)


def _more_accurate(report: Report, least: float | None, gates: GateSettings) -> str:
    """A file without rounding, else a milder entry of the trail, else more training."""
    if least is None:
        return _train_longer(report)
    metric = report.metric
    known = [(f, f.value) for f in report.pruned.files if f.value is not None]
    exact = [value for file, value in known if file.weight_storage == "exact"]
    rounded = [(file, value) for file, value in known if file.weight_storage != "exact"]
    if rounded and exact and all(metric.is_no_worse(value, least) for value in exact):
        file, _ = metric.worst(rounded, lambda pair: pair[1])
        return f"{file.path} is below the bar because its values are rounded: set export.weight_storage = 'exact'"
    now = report.pruned.compression or math.inf
    lowest = max(gates.min_compression or 1.0, 1 / (1 - (gates.min_sparsity or 0.0)))
    milder = [c for c in _candidates(report) if lowest <= c.compression < now]
    good = [c for c in milder if metric.is_no_worse(c.accuracy, least)]
    if good:
        best = max(good, key=lambda c: c.compression)
        return f"{best.command}, {metric.shown(best.accuracy)} on the validation split before fine-tuning"
    if milder:
        return f"{_train_longer(report)}, or a milder network: {metric.best(milder, lambda c: c.accuracy).command}"
    return _train_longer(report)


def _train_longer(report: Report) -> str:
    epochs, longer = report.pruned.epochs, "train for more epochs"
    if epochs:
        longer += f" (--epochs was {epochs.prune}, --finetune-epochs {epochs.finetune})"
    # without labels all is learned from the original already
    distills = (
        report.used_settings.get("train", {}).get("distillation_weight")
        or not report.metric.counts_right_answers
    )
    return longer if distills else f"{longer} or train.distillation_weight = 0.5"


def _min_sparsity(report: Report, limit: float, gates: GateSettings) -> str:
    return _min_compression(report, 1 / (1 - limit), gates)


def _min_compression(report: Report, limit: float, _: GateSettings) -> str:
    """Excluded layers where they alone are too many, else an entry of the trail, else the budget."""
    elements, unpruned = report.model.layer_elements, _unpruned(report)
    if elements and sum(layer.nonzeros or 0 for layer in unpruned) > elements / limit:
        return f"{_largest(unpruned, elements, 'kernel weights')}: no budget reaches {limit:.4g}× while it stays so"
    return _sparser(report, limit)


def _min_model_compression(report: Report, limit: float, _: GateSettings) -> str:
    """Tensors that are not pruned where they alone are too many, else the budget that is left for the kernels."""
    kernels, floats = report.model.layer_elements, report.model.float_elements
    nonzeros, ratio = report.pruned.nonzeros, report.pruned.model_compression
    if not (kernels and floats and ratio) or nonzeros is None:
        return _sparser(report, limit)
    layers = _unpruned(report)
    fixed = floats / ratio - nonzeros + sum(layer.nonzeros or 0 for layer in layers)
    if fixed >= floats / limit:
        worst = _largest([*layers, *report.model.largest_other_weights], floats, "weights")
        return f"{worst}: with all that is not pruned, no budget reaches more than {floats / max(fixed, 1):.3g}×"
    allowed = floats / limit - (floats / ratio - nonzeros)  # nonzeros that kernels may have
    return _sparser(report, kernels / allowed)


def _sparser(report: Report, compression: float) -> str:
    wanted = math.ceil(100 * compression) / 100
    given = {
        **report.used_settings.get("budget", {}),
        "method.lambda": report.settings.get("method", {}).get("lambda"),
    }
    instead = next((name for name in INSTEAD if given.get(name) is not None), None)
    budget = (
        f"set budget.target_compression = {wanted:g}{f' in place of {instead}' if instead else ''}"
    )
    sparser = [c for c in _candidates(report) if c.compression >= compression]
    return (
        f"{min(sparser, key=lambda c: c.compression).command}; or {budget}" if sparser else budget
    )


def _largest(tensors: Sequence[WeightInfo], whole: int, of: str) -> str:
    if not tensors:
        return f"{of} that are not pruned are too many"
    one = max(tensors, key=lambda t: t.elements)
    why = (one.reason if isinstance(one, LayerResult) else None) or "it is no kernel"
    return f"{one.name} has {one.elements:,} of the {whole:,} {of} and is not pruned ({why})"


def _beat_baseline(report: Report, _: float, __: GateSettings) -> str:
    interval = report.difference.interval if report.difference else None
    if interval is not None and interval[0] <= 0 <= interval[1]:
        samples = _samples(report)
        return f"the difference may be chance on {samples} test samples: give more; else {_train_longer(report)}"
    return _train_longer(report)


def _min_gain(report: Report, _: float, __: GateSettings) -> str:
    """A point of the baseline's curve where that is sparser at the same accuracy, else more training."""
    found = report.baseline
    if (
        found is not None
        and found.gain is not None
        and found.gain_bound != "at least"
        and found.gain < 1
    ):
        names = "baseline.curve in report.json names the file"
        return (
            f"the baseline is sparser at the same accuracy: {names}; else {_train_longer(report)}"
        )
    return _train_longer(report)


def _max_bytes(report: Report, limit: float, _: GateSettings) -> str:
    """What is not pruned where that alone is too large, else the packed format, else rounded values, else fewer."""
    files, floats, kernels = (
        report.pruned.files,
        report.model.float_elements,
        report.model.layer_elements,
    )
    if floats and kernels and (report.original.bytes or 0) * (1 - kernels / floats) > limit:
        return _largest(report.model.largest_other_weights, floats, "weights")
    if not any(f.encoding == "packed" for f in files):
        return "add the packed format: `ltp-pipeline export RUN --format packed`"
    if all(f.weight_storage == "exact" for f in files):
        return "round the values of packed files: `ltp-pipeline export RUN --weight-storage fp16`, or int8"
    smallest = min((f.bytes for f in files if f.bytes), default=limit)
    return _sparser(report, (report.pruned.compression or 1.0) * smallest / limit)


def _max_latency_ratio(report: Report, limit: float, _: GateSettings) -> str:
    del limit
    if not any(file.sparse_kernels for file in report.pruned.files):
        fast = "a file for the sparse kernels (`ltp-pipeline export RUN --format fast`), with the gate fast=RATIO"
        return f"zeros do not change latency by themselves: try {fast}; or leave out the format of the slowest file"
    return "measure on an idle machine, leave out the format of the slowest file, or give the gate by name: fast=RATIO"


def _min_layer_density(report: Report, limit: float, _: GateSettings) -> str:
    shares = [(layer.density, layer.name) for layer in report.layers if layer.density is not None]
    name = min(shares, key=lambda pair: pair[0])[1]
    floor = report.settings.get("method", {}).get("min_layer_density")
    return (
        f"set method.min_layer_density = {limit:g} (it is {floor}), or exclude {name} from pruning"
    )


ADVICE: dict[str, Callable[[Report, float, GateSettings], str]] = {
    "min_accuracy": _min_accuracy,
    "max_drop": _max_drop,
    "min_sparsity": _min_sparsity,
    "min_compression": _min_compression,
    "min_model_compression": _min_model_compression,
    "beat_baseline": _beat_baseline,
    "min_gain": _min_gain,
    "max_bytes": _max_bytes,
    "max_latency_ratio": _max_latency_ratio,
    "min_layer_density": _min_layer_density,
}


def _candidates(report: Report) -> list[SuggestedCandidate]:
    return [
        SuggestedCandidate(e.entry, e.compression, e.accuracy)
        for e in report.trail
        if not e.selected and e.compression is not None and e.accuracy is not None
    ]


def _unpruned(report: Report) -> list[LayerResult]:
    return [layer for layer in report.layers if not layer.prunable]


def _samples(report: Report) -> int | None:
    return report.pruned.accuracy.samples if report.pruned.accuracy else None
