"""Finish another entry of a run's trail, in a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.gates.evaluation import choose_limits, list_gates, make_gate_settings
from ltp_pipeline.graph.layer_weights import BLOCK_SIZE
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
    MethodSettings,
    Settings,
)
from ltp_pipeline.stages import baseline, learn_thresholds, prepare, select_entry
from ltp_pipeline.stages.baseline_search import MAX_POINTS
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.learn_thresholds.trail import ThresholdLearningResult
from ltp_pipeline.stages.prepare import defaults
from ltp_pipeline.system import distributed, threads
from ltp_pipeline.system.progress import Reporter
from ltp_pipeline.system.text import pluralize
from ltp_pipeline.tasks.custom import CustomTask


@dataclass(frozen=True)
class BaselineSpec:
    """What makes two baselines comparable.

    Attributes:
        nonzeros: Nonzeros of all layers.
        epochs: Total number of epochs.
    """

    nonzeros: int
    epochs: int


def pick(
    folder: Path,
    number: int,
    progress: Reporter,
    formats: Sequence[str] = (),
    mode: str | None = None,
    limits: Mapping[str, Any] | None = None,
    task: CustomTask | None = None,
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
    own_gates = make_gate_settings(limits or {})
    gates = choose_limits(own_gates, settings.gates.model_dump())
    settings = settings.model_copy(update={"gates": gates})
    if mode is None and limits:  # these gates need a baseline
        if limits.get("min_gain"):
            mode = "curve"
        elif limits.get("beat_baseline"):
            mode = "quick"
    baseline_mode: BaselineMode | None = None
    if mode is not None:
        baseline_mode = load_settings(None, options={"baseline": {"mode": mode}}).baseline.mode
        if not list_gates(own_gates):
            _check_gates(gates, baseline_mode)
    return finish_entry(parent, number, model, settings, baseline_mode, task=task)


def _replace_formats(had: ExportSettings, formats: Sequence[str]) -> ExportSettings:
    """Return export settings for other files; rounded files stay if there are packed ones."""
    exact = update_export(had, formats=formats, weight_storage=())
    if not any(find_format(name).can_be_rounded for name in exact.formats):
        return exact
    return update_export(exact, weight_storage=had.weight_storage)


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
        learned = ThresholdLearningResult(
            tuple(
                e.model_copy(update={"file": run_directory.relative_name(parent.path(e.file))})
                for e in entries
            )
        )
        entry = select_entry.find_entry(learned, number)
        context, original = prepare.prepare_run(
            read_model_file(model), settings, run_directory, task
        )
        context = defaults.load_defaults(context, original, parent)
        identity = prepare.get_run_identity(context.network.file, context.data, settings)
        parent.check_identity(identity)
        elements = sum(k.elements for k in context.network.layer_weights)
        point = BaselineSpec(
            round(elements / entry.compression), entry.epoch + context.finetune_epochs
        )
        points = [
            baseline.point_key(n, settings.baseline.exclude_classifier)
            for n in range(1, MAX_POINTS + 1)
        ]
        is_comparable = _is_comparable(
            _load_baseline_spec(parent, points[0]), point, settings.method
        )
        note = None
        if mode is None:
            mode = _trained_mode(
                parent if is_comparable else run_directory,
                points,
                settings.baseline.exclude_classifier,
            )
            if mode == "none":
                cost = _describe_cost(parent, point, context.epochs)
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
            run_directory.update_manifest(threads=threads.current_threads())
            if mode != "none" and is_comparable:
                for name in (
                    *points,
                    baseline.point_key(baseline.UNSTRUCTURED, settings.baseline.exclude_classifier),
                ):
                    run_directory.inherit_weights(name)
                note = "The baseline is the run's own, with the same nonzeros and epochs"
            if note:
                progress.say(note)
            planned = {"finetune": context.finetune_epochs}
            if mode != "none" and not is_comparable:
                planned.update(baseline.planned_epochs(context, point.epochs))
            announce_plan(context, planned)
            return finish_candidate(context, original, learned, entry)


def _trained_mode(
    run: RunDirectory, points: Sequence[str], spares_classifier: bool
) -> BaselineMode:
    """Return how much of a baseline a run has trained.

    A curve may have ended at its first point.
    """
    has_point = [run.load_weights_metadata(name) is not None for name in points[:2]]
    if not has_point[0]:
        return "none"
    run.load_inputs()
    if has_point[1]:
        return "curve"
    curve = BaselineSettings(mode="curve", exclude_classifier=spares_classifier)
    proof = run.manifest.proof
    return "curve" if proof is not None and proof.baseline == curve else "quick"


def _check_gates(gates: GateSettings, mode: BaselineMode) -> None:
    """Raise InputError if gates of the run need more of a baseline than there is."""
    if gates.beat_baseline and mode == "none":
        raise _missing_baseline_error("beat_baseline", "a baseline of this size", "quick")
    if gates.min_gain is not None and mode in ("quick", "none"):
        raise _missing_baseline_error("min_gain", "the curve of a baseline", "curve")


def _missing_baseline_error(gate: str, missing: str, mode: str) -> InputError:
    """Return the error for a gate of the run that cannot be checked."""
    return InputError(
        f"the run's gate {gate} needs {missing}, and there is none",
        f"--baseline {mode} trains one; or give this entry gates of its own, such as --max-drop",
    )


def _load_baseline_spec(run: RunDirectory, name: str) -> BaselineSpec | None:
    """Return nonzeros and epochs of the baseline that a run has trained; None without one."""
    info = load_network_info(run, name)
    return None if info is None else BaselineSpec(info.nonzeros, sum(info.epochs.values()))


def _is_comparable(
    trained: BaselineSpec | None, point: BaselineSpec, method: MethodSettings
) -> bool:
    """Return whether a trained baseline is one of this point.

    In blocks, it may have slightly fewer weights, because only whole blocks are kept.
    """
    if trained is None or trained.epochs != point.epochs:
        return False
    allowed = 1 if method.block is None else BLOCK_SIZE
    return 0 <= point.nonzeros - trained.nonzeros < allowed


def _describe_cost(run: RunDirectory, point: BaselineSpec, learning: int) -> str:
    """Return what training a baseline takes, from the time of learning in the run."""
    seconds = run.manifest.timings.get("learn", 0.0) / learning * point.epochs
    duration = f"about {round(seconds / 60)} min" if seconds >= 90 else "about a minute"
    return f"{pluralize(point.epochs, 'epoch')}, {duration}"
