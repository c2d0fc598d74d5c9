"""Finish another entry of a run's trail, in a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.gates.evaluation import choose_limits, list_gates, make_gate_settings
from ltp_pipeline.graph.layer_weights import BLOCK_SIZE
from ltp_pipeline.results.schema_parts import LearnedEntry
from ltp_pipeline.run_directory.names import GRADUAL
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.runner.finish import RunResult, load_finished_run
from ltp_pipeline.runner.networks import load_network_info
from ltp_pipeline.runner.run import announce_plan, finish_candidate
from ltp_pipeline.settings.checks import check_baseline_mode
from ltp_pipeline.settings.file_names import find_format
from ltp_pipeline.settings.load import load_settings, update_export
from ltp_pipeline.settings.schema import (
    BaselineMode,
    BaselineSettings,
    ExportSettings,
    GateSettings,
    Settings,
)
from ltp_pipeline.stages import baseline, learn_thresholds, prepare, select_entry
from ltp_pipeline.stages.baseline_search import MAX_POINTS
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.learn_thresholds.trail import ThresholdLearningResult
from ltp_pipeline.stages.prepare import defaults
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.system import distributed, threads
from ltp_pipeline.system.progress import Reporter
from ltp_pipeline.system.text import pluralize
from ltp_pipeline.tasks.custom import CustomTask


def pick(
    folder: Path,
    number: int,
    progress: Reporter,
    formats: Sequence[str] = (),
    mode: str | None = None,
    limits: Mapping[str, Any] | None = None,
    task: CustomTask | None = None,
    best: bool | None = None,
) -> RunResult:
    """Fine-tune, export, measure and report another entry of a run's trail.

    Args:
        folder: The run, or a picked entry of it.
        number: Number of the entry.
        progress: Shows progress.
        formats: Files to write; none for those of the run.
        mode: How much of a baseline to train; None takes the run's own if it is comparable.
        limits: Gates; none for those of the run.
        task: The custom task of the run.
        best: Export a baseline if it is better than the entry; None for the setting of the run.
    """
    if distributed.is_distributed():
        raise InputError(
            "only `run` trains with several processes", "start `pick` without torchrun"
        )
    run_directory = RunDirectory(folder, progress)
    run_directory.load_inputs()
    parent = run_directory.find_trail_run()
    model, settings = parent.load_inputs()
    if formats:
        export = _replace_formats(settings.export, formats)
        settings = settings.model_copy(update={"export": export})
    if best is not None:
        export = update_export(settings.export, best=best)
        settings = settings.model_copy(update={"export": export})
    own_gates = make_gate_settings(limits or {})
    gates = choose_limits(own_gates, settings.gates.model_dump())
    settings = settings.model_copy(update={"gates": gates})
    if mode is None and own_gates.min_gain:  # these gates need a baseline
        mode = "curve"
    elif mode is None and (own_gates.beat_baseline or best):
        mode = "gradual" if settings.baseline.mode == "gradual" else "quick"
    baseline_mode: BaselineMode | None = None
    if mode is not None:
        baseline_mode = load_settings(None, options={"baseline": {"mode": mode}}).baseline.mode
        if not list_gates(own_gates):
            _check_gates(gates, baseline_mode)
    return finish_entry(parent, number, model, settings, baseline_mode, task=task)


def _replace_formats(existing: ExportSettings, formats: Sequence[str]) -> ExportSettings:
    """Return export settings for other files; rounded files stay if there are packed ones."""
    exact = update_export(existing, formats=formats, weight_storage=())
    if not any(find_format(name).can_be_rounded for name in exact.formats):
        return exact
    return update_export(exact, weight_storage=existing.weight_storage)


def finish_entry(
    parent: RunDirectory,
    number: int,
    model: Path,
    settings: Settings,
    mode: BaselineMode | None,
    exactly: bool = False,
    task: CustomTask | None = None,
) -> RunResult:
    """Fine-tune, export, measure and report an entry.

    Args:
        parent: The run that has the trail.
        number: Number of the entry.
        model: The ONNX file.
        settings: The settings.
        mode: How much of a baseline to train; None takes the run's own if it is comparable.
        exactly: A finished entry must have exactly the requested files.
        task: The custom task of the run.
    """
    prepare.check_same_task(parent, task)
    progress = parent.progress
    run_directory = RunDirectory(
        parent.picked_directory(number), progress, parent, settings.log.tensorboard
    )
    threads_before = run_directory.saved_threads() or parent.saved_threads()
    with threads.use_threads(settings.train.threads, threads_before, progress.say):
        entries = learn_thresholds.load_trail(parent).trail
        parent.check_trail()
        moved_entries = []
        for entry in entries:
            file = run_directory.relative_name(parent.path(entry.file))
            moved_entries.append(entry.replace(file=file))
        learned = ThresholdLearningResult(tuple(moved_entries))
        entry = select_entry.find_entry(learned, number)
        context, original = prepare.prepare_run(
            read_model_file(model), settings, run_directory, task
        )
        context = defaults.load_defaults(context, original, parent)
        identity = prepare.get_run_identity(context.network.file, context.data, settings)
        parent.check_identity(identity)
        epochs = entry.epoch + context.finetune_epochs
        is_comparable = _has_comparable_baseline(parent, context, entry, epochs)
        note = None
        if mode is None:
            mode = _find_trained_mode(parent if is_comparable else run_directory, settings.baseline)
            if mode == "none":
                cost = _describe_cost(parent, epochs, context.epochs)
                note = (
                    "No baseline: the run has none of this size; "
                    f"--baseline quick trains one ({cost})"
                )
            _check_gates(settings.gates, mode)
        compared = settings.baseline.model_copy(update={"mode": mode})
        settings = settings.model_copy(update={"baseline": compared})
        check_baseline_mode(settings)
        context = replace(
            context, settings=context.settings.model_copy(update={"baseline": compared})
        )
        with run_directory.lock():
            is_resumed = run_directory.has_same_run({**identity, "entry": number})
            finished = load_finished_run(context, model, is_resumed, exactly)
            if finished is not None:
                return finished
            if is_resumed:
                progress.say(f"Resuming in {run_directory.root}")
            else:
                run_directory.begin_run({**identity, "entry": number})
            run_directory.save_inputs(model, settings, context.task.metric)
            rates = {**parent.manifest.learning_rates, **run_directory.manifest.learning_rates}
            run_directory.update_manifest(threads=threads.current_threads(), learning_rates=rates)
            if mode != "none" and is_comparable:
                for point in (*range(1, MAX_POINTS + 1), baseline.UNSTRUCTURED, GRADUAL):
                    name = baseline.point_key(point, compared)
                    run_directory.inherit_weights(name)
                cost = "nonzeros" if context.weight_costs is None else context.weight_costs.kind
                note = f"The baseline is the run's own, with the same {cost} and epochs"
            if note:
                progress.say(note)
            planned = {"finetune": context.finetune_epochs}
            if mode != "none" and not is_comparable:
                planned.update(baseline.planned_epochs(context, epochs))
            announce_plan(context, planned)
            return finish_candidate(context, original, learned, entry)


def _find_trained_mode(run: RunDirectory, settings: BaselineSettings) -> BaselineMode:
    """Return how much of a baseline a run has trained.

    A curve may have ended at its first point.
    """
    names = [baseline.point_key(number, settings) for number in (1, 2)]
    if run.load_weights_metadata(names[0]) is None:
        return "none"
    run.load_inputs()
    proof = run.manifest.proof
    curve = settings.model_copy(update={"mode": "curve"})
    has_ended_curve = proof is not None and proof.baseline == curve
    if has_ended_curve or run.load_weights_metadata(names[1]) is not None:
        return "curve"
    return "quick"


def _check_gates(gates: GateSettings, mode: BaselineMode) -> None:
    """Raise InputError if gates of the run need more of a baseline than there is."""
    if gates.beat_baseline and mode == "none":
        gate, missing, needed_mode = "beat_baseline", "a baseline of this size", "quick"
    elif gates.min_gain is not None and mode in ("quick", "gradual", "none"):
        gate, missing, needed_mode = "min_gain", "the curve of a baseline", "curve"
    else:
        return
    raise InputError(
        f"the run's gate {gate} needs {missing}, and there is none",
        f"--baseline {needed_mode} trains one; or set other gates for this entry, such as "
        "--max-drop",
    )


def _has_comparable_baseline(
    run: RunDirectory, context: RunContext, entry: LearnedEntry, epochs: int
) -> bool:
    """Return whether a run has a baseline of the cost of an entry, and of this number of epochs.

    The cost is the number of nonzeros, or what the budget counts. In blocks, the baseline may have
    slightly fewer weights, because only whole blocks are kept. If weights differ in cost, the last
    one may not fit.
    """
    settings = context.settings
    name = baseline.point_key(1, settings.baseline)
    info = load_network_info(run, name)
    if info is None or sum(info.epochs.values()) != epochs:
        return False
    allowed = 1 if settings.method.block is None else BLOCK_SIZE
    if context.costs is None:
        elements = sum(layer.elements for layer in context.network.layer_weights)
        return 0 <= round(elements / entry.compression) - info.nonzeros < allowed
    if entry.cost is None or info.cost is None:
        return False
    return 0 <= entry.cost - info.cost < allowed * max(context.costs.values())


def _describe_cost(run: RunDirectory, epochs: int, learning_epochs: int) -> str:
    """Return what training a baseline takes, from the time of learning in the run."""
    seconds = run.manifest.timings.get("learn", 0.0) / learning_epochs * epochs
    duration = f"about {round(seconds / 60)} min" if seconds >= 90 else "about a minute"
    return f"{pluralize(epochs, 'epoch')}, {duration}"
