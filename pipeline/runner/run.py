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
from ltp_pipeline.results.schema import LTP_METHOD
from ltp_pipeline.results.schema_parts import LearnedEntry
from ltp_pipeline.run_directory.access import check_writable
from ltp_pipeline.run_directory.names import LTP
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
from ltp_pipeline.runner.validation import compare_networks, find_best_method, load_weights
from ltp_pipeline.settings.checks import check_contradictions
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import (
    baseline,
    finetune_qat,
    learn_thresholds,
    prepare,
    rate_search,
    select_entry,
)
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.learn_thresholds.trail import ThresholdLearningResult
from ltp_pipeline.stages.measure.network import measure_original
from ltp_pipeline.stages.multiply_adds import count_cost
from ltp_pipeline.stages.prepare import augmentation, defaults, notes
from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.stages.rate_search import SearchedTraining
from ltp_pipeline.stages.report.assemble import ComparedNetworks, RunFindings, build_report
from ltp_pipeline.stages.report.weight_samples import sample_weights
from ltp_pipeline.stages.select_entry import SelectedEntry
from ltp_pipeline.stages.train.context import PrunedNetwork, RunContext
from ltp_pipeline.stages.train.evaluate import evaluate_metric
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
    run_directory = RunDirectory(out, progress, events=settings.log.tensorboard)
    prepare.check_same_task(run_directory, task, fresh)
    with threads.use_threads(
        settings.train.threads, run_directory.saved_threads(fresh), progress.say
    ):
        context, original = prepare.prepare_run(
            read_model_file(model), settings, run_directory, task
        )
        with run_directory.lock():
            return _run_locked(context, original, model, fresh, exactly)


def _run_locked(
    context: RunContext, original: StateDict, model: Path, fresh: bool, exactly: bool
) -> RunResult:
    """Run in a directory that is locked for this process; the arguments are those of `run`."""
    run_directory, settings = context.run_directory, context.settings
    identity = prepare.get_run_identity(context.network.file, context.data, settings)
    is_resumed = not fresh and run_directory.has_same_run(identity)
    finished = load_finished_run(context, model, is_resumed, exactly)
    if finished is not None:
        return finished
    distributed.begin_independent_work()
    value = prepare.check_original(context, original)  # before anything is written or removed
    defaults.check_default_budget(context, value)
    if not is_resumed:
        run_directory.begin_run(identity)
    run_directory.save_inputs(model, settings, context.task.metric)
    run_directory.update_manifest(threads=threads.current_threads())
    context = defaults.resolve_defaults(context, original, value)
    epochs = {"learn": context.epochs, "finetune": context.finetune_epochs}
    planned = dict(epochs)
    searches = [describe_search(context)]
    if settings.baseline.mode != "none":
        planned.update(baseline.planned_epochs(context, sum(epochs.values())))
        searches += baseline_curve.describe_searches(context, sum(epochs.values()))
    announce_plan(
        context, planned, SEARCHED if context.accuracy_budget is not None else (), searches
    )
    with measure_time(run_directory, rate_search.STAGE):
        lr = rate_search.find_learning_rate(
            context,
            searches[0],
            lambda trial, epochs, name: learn_thresholds.train_trial(trial, original, epochs, name),
        )
    context = context.with_learning_rate(lr)
    if is_resumed:
        run_directory.progress.say(f"Resuming the run in {run_directory.root}")
    else:
        notes.print_notes(context, original, value)
    if run_directory.manifest.learned:
        return finish_candidate(context, original, learn_thresholds.load_trail(run_directory))
    with measure_time(run_directory, "learn"):
        learned = learn_thresholds.run(context, original, value)
    return finish_candidate(context, original, learned)


def finish_candidate(
    context: RunContext,
    original: StateDict,
    learned: ThresholdLearningResult,
    entry: LearnedEntry | None = None,
) -> RunResult:
    """Fine-tune, export and measure an entry, do the same for the baselines, and report.

    Networks that were trained before are loaded from the run directory. With export.best, the
    files of the run are those of a baseline if it is better on the validation split.

    Args:
        context: The run.
        original: Tensors of the original network.
        learned: The trail.
        entry: The entry to finish; None selects one by the budget.
    """
    run_directory, settings = context.run_directory, context.settings
    measured = None
    if distributed.is_main_process():
        with measure_time(run_directory, "original"):
            measured = measure_original(context)
    # Other processes take the value of the main one.
    original_accuracy = distributed.broadcast_from_main(
        0.0 if measured is None else measured.validation_accuracy
    )
    # A picked entry was not selected by a budget.
    budget = context.accuracy_budget if entry is None else None
    with measure_time(run_directory, "finetune"):
        selected, tuned, weights, value = _select_network(
            context, learned, entry, budget, original_accuracy
        )
    epochs = sum(tuned.epochs.values())
    cost = count_cost(count_nonzeros(context.network, tuned.state), context.costs)
    target = BaselineTarget(context.task.metric, cost, epochs, value, original_accuracy, budget)
    has_baseline = settings.baseline.mode != "none"
    delivered = LTP_METHOD
    if has_baseline and settings.export.best:
        del tuned, weights  # the baseline needs the memory
        baseline_curve.train_compared(context, original, target)
        delivered = find_best_method(context)
        selected, tuned, weights, value = _select_network(
            context, learned, entry, budget, original_accuracy
        )
    folder = "" if delivered == LTP_METHOD else LTP
    pruned = export_and_evaluate(context, tuned, weights, measured, folder)
    pictures = sample_weights(context.network, weights, selected.entry.thresholds)
    del tuned, weights
    compared = None
    missing_baseline = SKIPPED if run_directory.parent is None else NOT_PICKED
    if has_baseline:
        compared = baseline_curve.run(context, original, target, measured, delivered)
    if measured is None or pruned is None:
        return load_main_result(context)
    validation = ComparedNetworks({LTP_METHOD: value})
    if has_baseline:
        validation = compare_networks(context)
    training_names = baseline.name_trainings(settings.baseline)
    budget_not_met = selected.budget_not_met
    if delivered != LTP_METHOD:
        weights = load_weights(context, delivered)
        pictures = sample_weights(context.network, weights, {})
        budget_not_met = _describe_missed_budget(target, validation.values[delivered])
    findings = RunFindings(
        context=context,
        original=measured,
        learned=learned,
        selected=selected.entry,
        ltp=pruned,
        baseline=compared,
        validation=validation,
        delivered=delivered,
        num_trainings=selected.num_trainings,
        budget=budget,
        learning_rates=run_directory.manifest.learning_rates,
        weights=pictures,
        notes=[
            *notes.list_report_notes(context, measured.validation_accuracy),
            *augmentation.list_notes(context),
            *rate_search.list_notes(context, [training_names[name] for name in validation.values]),
            *(selected.notes if delivered == LTP_METHOD else ()),
            *list_corrupt_images(context.data),
        ],
        budget_not_met=budget_not_met,
        baseline_reason=missing_baseline if compared is None else None,
    )
    return write_report(build_report(findings), settings, run_directory)


def _describe_missed_budget(target: BaselineTarget, accuracy: float) -> str | None:
    """Return why a baseline is outside the accuracy budget on the validation split, or None."""
    if target.budget is None:
        return None
    metric = target.metric
    worst = metric.find_worst_allowed(target.original_accuracy, target.budget)
    if metric.is_no_worse(accuracy, worst):
        return None
    return (
        f"the exported baseline has {metric.format_value(accuracy)} on the validation split, and "
        f"the budget is {metric.no_worse} {metric.format_value(worst)}"
    )


def _select_network(
    context: RunContext,
    learned: ThresholdLearningResult,
    entry: LearnedEntry | None,
    budget: float | None,
    original_accuracy: float,
) -> tuple[SelectedEntry, PrunedNetwork, Weights, float]:
    """Return the fine-tuned network of an entry, and its metric on the validation split.

    Without an entry, the budget selects one.
    """
    saved = load_saved_network(context, "pruned")
    if saved is not None:
        tuned, weights, info = saved
        saved_entry = select_entry.find_entry(learned, info.entry)
        selected = SelectedEntry(saved_entry, info.notes, info.budget_not_met, info.num_trainings)
        return selected, tuned, weights, info.validation_accuracy
    if entry is None:
        worst = None
        if budget is not None:
            worst = context.task.metric.find_worst_allowed(original_accuracy, budget)
        selected, tuned = select_entry.run(context, learned, worst)
    else:
        selected = SelectedEntry(entry, [f"entry {entry.entry} of the trail"])
        tuned = select_entry.finish_entry(context, entry)
    accuracy = evaluate_metric(context, tuned.state, context.data.val)
    weights = save_weights(
        context,
        "pruned",
        tuned,
        entry=selected.entry.entry,
        notes=selected.notes,
        budget_not_met=selected.budget_not_met,
        num_trainings=selected.num_trainings,
        validation_accuracy=accuracy,
    )
    return selected, tuned, weights, accuracy


def describe_search(context: RunContext) -> SearchedTraining:
    """Return the training of LTP, whose learning rate is searched for."""
    obstacle = None
    if context.settings.method.lambda_ is not None:
        obstacle = "paper mode has no search"
    elif context.accuracy_budget is not None:
        obstacle = "a search needs a target, and the budget is one of accuracy"
    total_steps = (context.epochs + context.finetune_epochs) * context.steps_per_epoch
    return SearchedTraining(LTP_METHOD, "Learning rate", total_steps, obstacle)


def announce_plan(
    context: RunContext,
    epochs: Mapping[str, int],
    searched: Collection[str] = (),
    rate_searches: Collection[SearchedTraining] = (),
) -> None:
    """Announce the phases ahead, so that the time left can be that of the whole run.

    Args:
        context: The run.
        epochs: Number of epochs of each phase.
        searched: Phases that may be followed by further trainings.
        rate_searches: Trainings whose learning rate is searched for.
    """
    if context.settings.train.quantization_aware and context.settings.export.has_int8:
        epochs = {**epochs, finetune_qat.NAME: context.int8_epochs}
    steps = {name: count * context.steps_per_epoch for name, count in epochs.items() if count}
    for training in rate_searches:
        steps.update(rate_search.plan_trials(context, training))
    open_ended = set(searched)
    if context.settings.requested_baseline in ("auto", "curve"):
        open_ended.update(("learn", "finetune", "baseline", "curve"))
    context.run_directory.progress.plan(steps, open_ended)
