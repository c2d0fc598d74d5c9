"""The order of the stages: import, learn, prune, fine-tune, export, validate, baseline, report.

Every process of a run walks this page; only the leader measures files, writes and reports. Training phases go on from
their own checkpoints, so a run that is started again walks the same path and only does what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from ltp_pipeline.data.images.broken import list_corrupt_images
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.results.records import (
    MeasuredOriginal,
    PrunedNetwork,
    ThresholdLearningResult,
    TrailEntry,
)
from ltp_pipeline.run_directory.access import check_writable
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.runner import baseline as baseline_curve
from ltp_pipeline.runner.baseline import BaselineTarget
from ltp_pipeline.runner.finish import RunResult, load_finished_run, load_main_result, write_report
from ltp_pipeline.runner.networks import (
    export_and_evaluate,
    load_saved_network,
    measure_time,
    save_weights,
)
from ltp_pipeline.settings.checks import check_contradictions
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import baseline, finetune_qat, learn_thresholds, prepare, select_entry
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.measure import network
from ltp_pipeline.stages.prepare import defaults, notes
from ltp_pipeline.stages.report.assemble import Findings, build
from ltp_pipeline.stages.report.weight_samples import sample_weights
from ltp_pipeline.stages.select_entry import SelectedEntry
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.system import distributed, threads
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.progress import Reporter
from ltp_pipeline.tasks.custom import CustomTask

LEFT_OUT = "left out by --no-baseline"
NOT_PICKED = (
    "none was trained for this entry of the trail; `ltp-pipeline pick --baseline curve` trains one"
)
SEARCHED = ("learn", "finetune")  # until these are over, more networks may be fine-tuned than one


def run(
    model: Path,
    settings: Settings,
    out: Path,
    progress: Reporter,
    fresh: bool = False,
    exactly: bool = False,
    task: CustomTask | None = None,
) -> RunResult:
    """Prune, prove and report one model; a finished run may have more files than asked for, unless `exactly` these."""
    check_writable(out)
    check_contradictions(settings)
    prepare.check_paths_outside(out, model, settings)
    workspace = RunDirectory(out, progress, events=settings.log.tensorboard)
    prepare.check_same_task(workspace, task, fresh)
    with threads.use_threads(settings.train.threads, workspace.saved_threads(fresh), progress.say):
        job, original = prepare.prepare(read_model_file(model), settings, workspace, task)
        with workspace.lock():
            return _run_locked(job, original, model, fresh, exactly)


def _run_locked(
    job: RunContext, original: StateDict, model: Path, fresh: bool, exactly: bool
) -> RunResult:
    workspace, settings = job.workspace, job.settings
    identity = prepare.run_identity(job.network.file, job.data, settings)
    going_on = not fresh and workspace.has_same_run(identity)
    if done := load_finished_run(job, model, going_on, exactly):
        return done
    distributed.begin_independent_work()
    value = prepare.check_original(job, original)  # before anything is written or removed
    defaults.check_default_budget(job, value)
    if not going_on:
        workspace.begin_run(identity)
    workspace.save_inputs(model, settings, job.task.metric)
    workspace.update_manifest(threads=threads.current_threads())
    job = defaults.resolve_defaults(job, original, value)
    epochs = {"learn": job.epochs, "finetune": job.finetune_epochs}
    compared = (
        baseline.planned_epochs(job, sum(epochs.values()))
        if settings.baseline.mode != "none"
        else {}
    )
    announce_plan(
        job,
        {**epochs, **compared},
        SEARCHED if job.accuracy_budget is not None else (),
    )
    if going_on:
        workspace.progress.say(f"Going on with the run in {workspace.root}")
    else:
        notes.print_notes(job, original, value)
    if workspace.manifest.learned:
        return finish_candidate(job, original, learn_thresholds.load_trail(workspace))
    with measure_time(workspace, "learn"):
        learned = learn_thresholds.run(job, original, value)
    return finish_candidate(job, original, learned)


def finish_candidate(
    job: RunContext,
    original: StateDict,
    learned: ThresholdLearningResult,
    entry: TrailEntry | None = None,
) -> RunResult:
    """From the trail to the report: fine-tune an entry, export and measure it, and the same with the baseline.

    Without an entry, the budget tells which. What was trained before is taken from the run directory.
    """
    workspace, settings = job.workspace, job.settings
    measured, reference = None, None
    if distributed.is_main_process():
        with measure_time(workspace, "original"):
            measured, reference = network.measure_original(job)
    with measure_time(workspace, "finetune"):
        selected, tuned, weights, value = _select_network(job, learned, entry, measured)
    pruned, compared = export_and_evaluate(job, tuned, weights, reference), None
    pictures = sample_weights(job.network, weights, selected.entry.thresholds)
    budget = (
        job.accuracy_budget if entry is None else None
    )  # which a picked entry was not chosen by
    epochs, before = sum(tuned.epochs.values()), _validation_accuracy(job, measured)
    rival = BaselineTarget(job.task.metric, tuned.nonzeros, epochs, value, before, budget)
    del tuned, weights  # the baseline needs the memory
    if settings.baseline.mode != "none":
        compared = baseline_curve.run(job, original, rival, reference)
    if not distributed.is_main_process():
        return load_main_result(job)
    assert measured is not None  # noqa: S101 - the leader has measured
    assert pruned is not None  # noqa: S101 - the leader has measured
    findings = Findings(
        network=job.network,
        data=job.data,
        settings=settings,
        resolved=job.resolved_settings,
        original=measured,
        learned=learned,
        chosen=selected.entry,
        pruned=pruned,
        baseline=compared,
        fine_tuned=selected.num_trainings,
        budget=budget,
        weights=pictures,
        device=job.device.type,
        task=job.task,
        timings=workspace.manifest.timings,
        notes=[
            *notes.list_report_notes(job, measured.validation_accuracy),
            *selected.notes,
            *list_corrupt_images(job.data),
        ],
        budget_missed=selected.budget_not_met,
        no_baseline=None if compared else LEFT_OUT if workspace.parent is None else NOT_PICKED,
    )
    return write_report(build(findings), settings, workspace)


def _select_network(
    job: RunContext,
    learned: ThresholdLearningResult,
    entry: TrailEntry | None,
    original: MeasuredOriginal | None,
) -> tuple[SelectedEntry, PrunedNetwork, Weights, float]:
    """The fine-tuned network of an entry, or of the one that the budget tells; with its accuracy on validation."""
    if known := load_saved_network(job, "pruned"):
        tuned, weights, kept = known
        selected = SelectedEntry(
            select_entry.find_entry(learned, kept.entry),
            kept.notes,
            kept.budget_not_met,
            kept.num_trainings,
        )
        return selected, tuned, weights, kept.validation_accuracy
    if entry is None:
        selected, tuned = select_entry.run(job, learned, _worst_accuracy(job, original))
    else:
        selected, tuned = (
            SelectedEntry(entry, [f"entry {entry.entry} of the trail"]),
            select_entry.finish_entry(job, entry),
        )
    value = evaluate_metric(job, tuned.state, job.data.val)
    told = {
        "entry": selected.entry.entry,
        "notes": selected.notes,
        "budget_not_met": selected.budget_not_met,
        "num_trainings": selected.num_trainings,
    }
    return (
        selected,
        tuned,
        save_weights(job, "pruned", tuned, **told, validation_accuracy=value),
        value,
    )


def _worst_accuracy(job: RunContext, original: MeasuredOriginal | None) -> float | None:
    """The worst validation accuracy within the budget."""
    budget = job.accuracy_budget
    return (
        None
        if budget is None
        else job.task.metric.worst_allowed(_validation_accuracy(job, original), budget)
    )


def _validation_accuracy(job: RunContext, original: MeasuredOriginal | None) -> float:
    """The original's, as the leader measured it."""
    return distributed.broadcast_from_main(
        0.0 if original is None else original.validation_accuracy, job.device
    )


def announce_plan(
    job: RunContext, epochs: Mapping[str, int], searched: Collection[str] = ()
) -> None:
    """Tell who shows progress what is ahead, so that the time left can be that of the whole run."""
    if job.settings.train.quantization_aware and job.settings.export.has_int8:
        epochs = {**epochs, finetune_qat.NAME: job.int8_epochs}
    steps = {name: count * job.steps_per_epoch for name, count in epochs.items() if count}
    curve = (
        ("learn", "finetune", "baseline", "curve")
        if job.settings.requested_baseline in ("auto", "curve")
        else ()
    )
    job.workspace.progress.plan(steps, {*searched, *curve})
