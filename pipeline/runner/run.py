"""The order of the stages: import, learn, prune, fine-tune, export, measure, baseline, report.

Every process of a run executes this module. Only the main process measures files, writes and
reports. Training phases resume from their checkpoints, so a run that is started again takes the
same path and does only what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from ltp_pipeline.data.images.collection import list_corrupt_images
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.results.schema_parts import LearnedEntry
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
from ltp_pipeline.stages.learn_thresholds.trail import ThresholdLearningResult
from ltp_pipeline.stages.measure import network
from ltp_pipeline.stages.measure.network import MeasuredBaseline, MeasuredOriginal
from ltp_pipeline.stages.prepare import defaults, notes
from ltp_pipeline.stages.report.assemble import RunFindings, build_report
from ltp_pipeline.stages.report.weight_samples import sample_weights
from ltp_pipeline.stages.select_entry import SelectedEntry
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.job import PrunedNetwork, RunContext
from ltp_pipeline.system import distributed, threads
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.progress import Reporter
from ltp_pipeline.tasks.custom import CustomTask

SKIPPED = "skipped by --no-baseline"
NOT_PICKED = (
    "none was trained for this entry of the trail; `ltp-pipeline pick --baseline curve` trains one"
)
# Phases that may be followed by the fine-tuning of further networks, in search of a budget.
SEARCHED = ("learn", "finetune")


def run(
    model: Path,
    settings: Settings,
    out: Path,
    progress: Reporter,
    fresh: bool = False,
    exactly: bool = False,
    task: CustomTask | None = None,
) -> RunResult:
    """Prune, verify and report one model.

    Args:
        model: The ONNX file.
        settings: The settings.
        out: The run directory.
        progress: Shows progress.
        fresh: Start over instead of resuming.
        exactly: A finished run must have exactly the requested files. Otherwise it may have more.
        task: A custom task.

    Raises:
        LtpError: See the exit codes.
    """
    check_writable(out)
    check_contradictions(settings)
    prepare.check_paths_outside(out, model, settings)
    workspace = RunDirectory(out, progress, events=settings.log.tensorboard)
    prepare.check_same_task(workspace, task, fresh)
    with threads.use_threads(settings.train.threads, workspace.saved_threads(fresh), progress.say):
        job, original = prepare.prepare_run(read_model_file(model), settings, workspace, task)
        with workspace.lock():
            return _run_locked(job, original, model, fresh, exactly)


def _run_locked(
    job: RunContext, original: StateDict, model: Path, fresh: bool, exactly: bool
) -> RunResult:
    """Run in a directory that is locked for this process; the arguments are those of `run`."""
    workspace, settings = job.workspace, job.settings
    identity = prepare.get_run_identity(job.network.file, job.data, settings)
    is_resumed = not fresh and workspace.has_same_run(identity)
    finished = load_finished_run(job, model, is_resumed, exactly)
    if finished is not None:
        return finished
    distributed.begin_independent_work()
    value = prepare.check_original(job, original)  # before anything is written or removed
    defaults.check_default_budget(job, value)
    if not is_resumed:
        workspace.begin_run(identity)
    workspace.save_inputs(model, settings, job.task.metric)
    workspace.update_manifest(threads=threads.current_threads())
    job = defaults.resolve_defaults(job, original, value)
    epochs = {"learn": job.epochs, "finetune": job.finetune_epochs}
    planned = dict(epochs)
    if settings.baseline.mode != "none":
        planned.update(baseline.planned_epochs(job, sum(epochs.values())))
    announce_plan(job, planned, SEARCHED if job.accuracy_budget is not None else ())
    if is_resumed:
        workspace.progress.say(f"Resuming the run in {workspace.root}")
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
    entry: LearnedEntry | None = None,
) -> RunResult:
    """Fine-tune, export and measure an entry, do the same for the baseline, and report.

    Networks that were trained before are loaded from the run directory.

    Args:
        job: The run.
        original: Tensors of the original network.
        learned: The trail.
        entry: The entry to finish; None selects one by the budget.
    """
    workspace, settings = job.workspace, job.settings
    measured = None
    reference = None
    if distributed.is_main_process():
        with measure_time(workspace, "original"):
            measured, reference = network.measure_original(job)
    with measure_time(workspace, "finetune"):
        selected, tuned, weights, value = _select_network(job, learned, entry, measured)
    pruned = export_and_evaluate(job, tuned, weights, reference)
    compared = None
    pictures = sample_weights(job.network, weights, selected.entry.thresholds)
    # A picked entry was not selected by a budget.
    budget = job.accuracy_budget if entry is None else None
    epochs = sum(tuned.epochs.values())
    original_accuracy = _validation_accuracy(job, measured)
    target = BaselineTarget(
        job.task.metric, tuned.nonzeros, epochs, value, original_accuracy, budget
    )
    del tuned, weights  # the baseline needs the memory
    if settings.baseline.mode != "none":
        compared = baseline_curve.run(job, original, target, reference)
    if not distributed.is_main_process():
        return load_main_result(job)
    assert measured is not None  # noqa: S101 - the main process has measured
    assert pruned is not None  # noqa: S101 - the main process has measured
    findings = RunFindings(
        network=job.network,
        data=job.data,
        settings=settings,
        resolved=job.resolved_settings,
        original=measured,
        learned=learned,
        selected=selected.entry,
        pruned=pruned,
        baseline=compared,
        num_trainings=selected.num_trainings,
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
        budget_not_met=selected.budget_not_met,
        baseline_reason=_missing_baseline_reason(compared, workspace),
    )
    return write_report(build_report(findings), settings, workspace)


def _select_network(
    job: RunContext,
    learned: ThresholdLearningResult,
    entry: LearnedEntry | None,
    original: MeasuredOriginal | None,
) -> tuple[SelectedEntry, PrunedNetwork, Weights, float]:
    """Return the fine-tuned network of an entry, and its metric on the validation split.

    Args:
        job: The run.
        learned: The trail.
        entry: The entry; None selects one by the budget.
        original: The measured original, in the main process.
    """
    saved = load_saved_network(job, "pruned")
    if saved is not None:
        tuned, weights, info = saved
        saved_entry = select_entry.find_entry(learned, info.entry)
        selected = SelectedEntry(saved_entry, info.notes, info.budget_not_met, info.num_trainings)
        return selected, tuned, weights, info.validation_accuracy
    if entry is None:
        selected, tuned = select_entry.run(job, learned, _worst_accuracy(job, original))
    else:
        selected = SelectedEntry(entry, [f"entry {entry.entry} of the trail"])
        tuned = select_entry.finish_entry(job, entry)
    accuracy = evaluate_metric(job, tuned.state, job.data.val)
    weights = save_weights(
        job,
        "pruned",
        tuned,
        entry=selected.entry.entry,
        notes=selected.notes,
        budget_not_met=selected.budget_not_met,
        num_trainings=selected.num_trainings,
        validation_accuracy=accuracy,
    )
    return selected, tuned, weights, accuracy


def _missing_baseline_reason(
    compared: MeasuredBaseline | None, workspace: RunDirectory
) -> str | None:
    """Return why there is no baseline; None if there is one."""
    if compared is not None:
        return None
    return SKIPPED if workspace.parent is None else NOT_PICKED


def _worst_accuracy(job: RunContext, original: MeasuredOriginal | None) -> float | None:
    """Return the worst validation accuracy within the budget; None for another kind of budget."""
    budget = job.accuracy_budget
    if budget is None:
        return None
    return job.task.metric.find_worst_allowed(_validation_accuracy(job, original), budget)


def _validation_accuracy(job: RunContext, original: MeasuredOriginal | None) -> float:
    """Return the original's validation accuracy, as the main process measured it."""
    accuracy = 0.0 if original is None else original.validation_accuracy
    return distributed.broadcast_from_main(accuracy, job.device)


def announce_plan(
    job: RunContext, epochs: Mapping[str, int], searched: Collection[str] = ()
) -> None:
    """Announce the phases ahead, so that the time left can be that of the whole run.

    Args:
        job: The run.
        epochs: Number of epochs of each phase.
        searched: Phases that may be followed by further trainings.
    """
    if job.settings.train.quantization_aware and job.settings.export.has_int8:
        epochs = {**epochs, finetune_qat.NAME: job.int8_epochs}
    steps = {name: count * job.steps_per_epoch for name, count in epochs.items() if count}
    open_ended = set(searched)
    if job.settings.requested_baseline in ("auto", "curve"):
        open_ended.update(("learn", "finetune", "baseline", "curve"))
    job.workspace.progress.plan(steps, open_ended)
