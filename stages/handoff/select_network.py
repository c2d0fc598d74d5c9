"""Make the report of another network of a run, in which it is the pruned network."""

from pathlib import PurePosixPath
from typing import Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.complete import NONZEROS_KEYS, complete
from ltp_pipeline.results.schema import (
    COMPARING_GATES,
    IS_BASELINE,
    IS_DELIVERED,
    IS_PRUNED,
    LTP_METHOD,
    MAGNITUDE_METHOD,
    NETWORK_KEYS,
    CostBudgetResult,
    NetworkResult,
    Report,
)
from ltp_pipeline.stages.report.filters import name_network
from ltp_pipeline.stages.report.notes import describe_improvement
from ltp_pipeline.system.text import pluralize

# What messages call the networks that can be delivered, and how a run gets them, by key.
DELIVERABLE = {
    "baseline": ("baseline", "start it again with --baseline quick"),
    "gradual_baseline": ("gradual baseline", "start it again with --baseline gradual"),
    "ltp": ("second network", "pass --network pruned"),
}
LEARNING_NOTES = ("thresholds ", "tried ", "entry ")  # first words of notes about the trail


def select_network(report: Report, key: str = "baseline", is_picked: bool = False) -> Report:
    """Return a report with another network as its pruned network, and without gate results.

    Args:
        report: Report of the run.
        key: Key of the network in the report.
        is_picked: Whether the run finished a picked entry. The accuracy budget of its run does not
            apply to such an entry, and so not to its baselines.

    Raises:
        InputError: The run has no such network.
    """
    network: NetworkResult | None = getattr(report, key)
    if network is None:
        name, hint = DELIVERABLE[key]
        reason = report.reasons.get(key, "none was trained")
        if reason == IS_PRUNED:
            hint = "pass --network pruned"
        raise InputError(f"the run has no {name} to deliver: {reason}", hint)
    layers = []
    for layer in report.layers:
        nonzeros: dict[str, Any] = dict.fromkeys(NONZEROS_KEYS.values())
        nonzeros["nonzeros"] = getattr(layer, NONZEROS_KEYS[key])
        layers.append(layer.replace(**nonzeros, threshold=None, temperature=None))
    gates = {**report.settings.get("gates", {}), **dict.fromkeys(COMPARING_GATES)}
    reason = IS_DELIVERED if key == "ltp" else IS_BASELINE
    reasons = dict.fromkeys((*NETWORK_KEYS.values(), "difference"), reason)
    selected = report.replace(
        pruned=_convert_network(network),
        **dict.fromkeys(NETWORK_KEYS.values()),
        difference=None,
        layers=tuple(layers),
        cost_budget=_convert_budget(report.cost_budget),
        trail=(),
        histograms=(),
        scatter=None,
        sizes={},
        settings={**report.settings, "gates": gates},
        reasons={**report.reasons, **reasons},
        gates=(),
        status="no-gates",
    )
    selected = complete(selected)
    missed_budget = None
    if not is_picked:
        missed_budget = _describe_missed_budget(selected)
    return selected.replace(
        notes=tuple(_list_notes(report, selected.pruned)),
        budget_not_met=missed_budget,
        suspicious_improvement=describe_improvement(selected.pruned, report.metric),
    )


def _convert_budget(budget: CostBudgetResult | None) -> CostBudgetResult | None:
    """Return the budget of a cost without the prediction, which is that of another network."""
    if budget is None or budget.predicted is None:
        return budget
    return budget.replace(predicted=None, reasons={**budget.reasons, "predicted": IS_BASELINE})


def _convert_network(network: NetworkResult) -> NetworkResult:
    """Return a network whose files are beside its report."""
    content = {name: getattr(network, name) for name in NetworkResult.model_fields}
    files = []
    for file in network.files:
        files.append(file.replace(path=PurePosixPath(file.path).name))
    content["files"] = tuple(files)
    content["reasons"] = dict(network.reasons)
    for key in type(network).model_fields.keys() - NetworkResult.model_fields.keys():
        content["reasons"].pop(key, None)
    content["num_trainings"] = 1
    return NetworkResult(**content)


def _list_notes(report: Report, network: NetworkResult) -> list[str]:
    """Return notes about the network, and the notes of the run that hold for it too."""
    epochs = 0
    if network.epochs:
        epochs = sum(network.epochs.model_dump().values())
    role = "" if network.base_method == LTP_METHOD else ", a baseline of the run"
    if network.base_method == MAGNITUDE_METHOD:
        role = ", the baseline of the run"
    notes = [
        f"pruned by {name_network(network)}{role}, and trained for {pluralize(epochs, 'epoch')}"
    ]
    limits = report.settings.get("gates", {})
    skipped_gates = [name for name in COMPARING_GATES if limits.get(name)]
    if skipped_gates:
        notes.append(f"gates that compare with a baseline are skipped: {', '.join(skipped_gates)}")
    of_pruned = (report.budget_not_met, report.suspicious_improvement)
    for note in report.notes:
        if note not in of_pruned and not note.startswith(LEARNING_NOTES):
            notes.append(note)
    return notes


def _describe_missed_budget(report: Report) -> str | None:
    """Return why the network is outside the accuracy budget on the test split, or None."""
    budget = report.used_settings.get("budget", {}).get("accuracy_budget")
    drop = report.pruned.drop
    if budget is None or drop is None or drop <= budget:
        return None
    metric = report.metric
    return (
        f"the network loses {metric.format_drop(drop)} on the test split, and the budget is "
        f"{metric.format_drop(budget)}"
    )
