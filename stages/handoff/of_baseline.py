"""The report of a run's baseline alone, as of the network that is handed over."""

from pathlib import PurePosixPath

from ltp_pipeline.errors import InputError
from ltp_pipeline.gates.advice import IS_BASELINE
from ltp_pipeline.gates.evaluation import choose_limits, evaluate_gates, set_gate_results
from ltp_pipeline.results.complete import bound_size
from ltp_pipeline.results.schema import BaselineResult, NetworkResult, Report
from ltp_pipeline.settings.schema import GateSettings
from ltp_pipeline.stages.report.filters import name_network
from ltp_pipeline.stages.report.notes import describe_improvement
from ltp_pipeline.system.text import pluralize

COMPARING = ("beat_baseline", "baseline_margin", "min_gain")  # gates that need a baseline
OF_LEARNING = (
    "thresholds ",
    "tried ",
    "entry ",
)  # how notes begin that are about thresholds or the trail


def as_pruned(report: Report, picked: bool = False) -> Report:
    """The report with the baseline under `pruned`, judged by the gates that need no baseline.

    An entry that was `picked` is not judged by the accuracy budget of its run, and so its baseline is not.
    """
    baseline = report.baseline
    if baseline is None:
        why = report.reasons.get("baseline", "none was run")
        raise InputError(
            f"the run has no baseline to hand over: {why}", "start it again with --baseline quick"
        )
    pruned = _pruned(baseline)
    limits = report.settings.get("gates", {})
    kept = {name: value for name, value in limits.items() if name not in COMPARING}
    gates = choose_limits(GateSettings(), kept)
    changes = {
        "pruned": pruned,
        "baseline": None,
        "difference": None,
        "layers": tuple(
            layer.model_copy(
                update={
                    "nonzeros": layer.baseline_nonzeros,
                    "baseline_nonzeros": None,
                    "threshold": None,
                    "temperature": None,
                }
            )
            for layer in report.layers
        ),
        "trail": (),
        "histograms": (),
        "scatter": None,
        "sizes": {
            "original": report.sizes.get("original"),
            **{f.label: f.bytes for f in pruned.files},
            "entropy_bound": _bound(report, pruned),
        },
        "settings": {**report.settings, "gates": gates.model_dump(mode="json")},
        "notes": tuple(_notes(report, pruned)),
        "budget_not_met": None if picked else _budget_missed(report, pruned),
        "suspicious_improvement": describe_improvement(pruned, report.metric),
        "reasons": {**report.reasons, "baseline": IS_BASELINE, "difference": IS_BASELINE},
    }
    alone = report.model_copy(update=changes)
    return set_gate_results(alone, evaluate_gates(alone, gates))


def _pruned(baseline: BaselineResult) -> NetworkResult:
    """The network with its files beside the report, and without what compares it."""
    of_curve = BaselineResult.model_fields.keys() - NetworkResult.model_fields.keys()
    values = {name: getattr(baseline, name) for name in NetworkResult.model_fields}
    values["files"] = tuple(
        f.model_copy(update={"path": PurePosixPath(f.path).name}) for f in baseline.files
    )
    values["reasons"] = {key: why for key, why in baseline.reasons.items() if key not in of_curve}
    return NetworkResult(**{**values, "num_trainings": 1})


def _bound(report: Report, pruned: NetworkResult) -> int | None:
    """The least size of a file with as many nonzeros as this network has."""
    original, elements, nonzeros = (
        report.original.bytes,
        report.model.layer_elements,
        pruned.nonzeros,
    )
    return (
        bound_size(original, elements, nonzeros)
        if original and elements and nonzeros is not None
        else None
    )


def _notes(report: Report, pruned: NetworkResult) -> list[str]:
    """What holds for this network too, after what it is."""
    epochs = sum(pruned.epochs.model_dump().values()) if pruned.epochs else 0
    told = [
        f"pruned by {name_network(pruned)}, the baseline of the run, and trained for {pluralize(epochs, 'epoch')}"
    ]
    left_out = [name for name in COMPARING if report.settings.get("gates", {}).get(name)]
    if left_out:
        told.append(f"gates that compare with a baseline are left out: {', '.join(left_out)}")
    others = (report.budget_not_met, report.suspicious_improvement)
    return [*told, *(n for n in report.notes if n not in others and not n.startswith(OF_LEARNING))]


def _budget_missed(report: Report, pruned: NetworkResult) -> str | None:
    """Whether the baseline itself is outside the accuracy budget, by the test split."""
    metric, budget = report.metric, report.used_settings.get("budget", {}).get("accuracy_budget")
    if budget is None or pruned.drop is None or pruned.drop <= budget:
        return None
    drop, most = metric.shown_drop(pruned.drop), metric.shown_drop(budget)
    return f"the baseline loses {drop} on the test split, and the budget is {most}"
