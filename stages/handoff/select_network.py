"""Make the report of the baseline of a run, in which the baseline is the pruned network."""

from pathlib import PurePosixPath

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.complete import complete
from ltp_pipeline.results.schema import (
    COMPARING_GATES,
    IS_BASELINE,
    BaselineResult,
    NetworkResult,
    Report,
)
from ltp_pipeline.stages.report.filters import name_network
from ltp_pipeline.stages.report.notes import describe_improvement
from ltp_pipeline.system.text import pluralize

LEARNING_NOTES = ("thresholds ", "tried ", "entry ")  # first words of notes about the trail


def select_baseline(report: Report, is_picked: bool = False) -> Report:
    """Return a report with the baseline as its pruned network, and without gate results.

    Args:
        report: Report of the run.
        is_picked: Whether the run finished a picked entry. The accuracy budget of its run does not
            apply to such an entry, and so not to its baseline.

    Raises:
        InputError: The run has no baseline.
    """
    baseline = report.baseline
    if baseline is None:
        reason = report.reasons.get("baseline", "none was trained")
        raise InputError(
            f"the run has no baseline to deliver: {reason}",
            "start it again with --baseline quick",
        )
    layers = []
    for layer in report.layers:
        layer_of_baseline = layer.replace(
            nonzeros=layer.baseline_nonzeros,
            baseline_nonzeros=None,
            threshold=None,
            temperature=None,
        )
        layers.append(layer_of_baseline)
    gates = {**report.settings.get("gates", {}), **dict.fromkeys(COMPARING_GATES)}
    selected = report.replace(
        pruned=_convert_network(baseline),
        baseline=None,
        difference=None,
        layers=tuple(layers),
        trail=(),
        histograms=(),
        scatter=None,
        sizes={},
        settings={**report.settings, "gates": gates},
        reasons={**report.reasons, "baseline": IS_BASELINE, "difference": IS_BASELINE},
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


def _convert_network(baseline: BaselineResult) -> NetworkResult:
    """Return the baseline as a network whose files are beside its report."""
    content = {name: getattr(baseline, name) for name in NetworkResult.model_fields}
    files = []
    for file in baseline.files:
        files.append(file.replace(path=PurePosixPath(file.path).name))
    content["files"] = tuple(files)
    content["reasons"] = dict(baseline.reasons)
    for key in BaselineResult.model_fields.keys() - NetworkResult.model_fields.keys():
        content["reasons"].pop(key, None)
    content["num_trainings"] = 1
    return NetworkResult(**content)


def _list_notes(report: Report, network: NetworkResult) -> list[str]:
    """Return notes about the network, and the notes of the run that hold for it too."""
    epochs = 0
    if network.epochs:
        epochs = sum(network.epochs.model_dump().values())
    notes = [
        f"pruned by {name_network(network)}, the baseline of the run, and trained for "
        f"{pluralize(epochs, 'epoch')}"
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
        f"the baseline loses {metric.format_drop(drop)} on the test split, and the budget is "
        f"{metric.format_drop(budget)}"
    )
