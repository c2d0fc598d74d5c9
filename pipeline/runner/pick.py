"""Finish another entry of a run's trail, in a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.gates.evaluation import choose_limits, list_gates, make_gate_settings
from ltp_pipeline.graph.layer_weights import BLOCK_SIZE
from ltp_pipeline.results.records import ThresholdLearningResult
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
from ltp_pipeline.stages.prepare import defaults
from ltp_pipeline.system import distributed, threads
from ltp_pipeline.system.progress import Reporter
from ltp_pipeline.system.text import pluralize
from ltp_pipeline.tasks.custom import CustomTask


@dataclass(frozen=True)
class BaselineSpec:
    """What a baseline is comparable by: nonzeros of all kernels, and epochs of training in total."""

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
    """Finish another entry of a run's trail: fine-tune, export, validate and report it in a folder of its own.

    It is judged by the `limits` given, or else by those of the run. Without a word about the baseline, the run's own is
    taken where it fits.
    """
    if distributed.is_distributed():
        raise InputError(
            "only `run` trains with several processes", "start `pick` without torchrun"
        )
    given = RunDirectory(folder, progress)
    given.load_inputs()
    parent = given.find_trail_run()
    model, settings = parent.load_inputs()
    if formats:
        settings = settings.model_copy(
            update={"export": _replace_formats(settings.export, formats)}
        )
    given_limits = make_gate_settings(limits or {})
    gates = choose_limits(given_limits, settings.gates.model_dump())
    settings = settings.model_copy(update={"gates": gates})
    if mode is None and limits:  # there is no other way to tell
        mode = (
            "curve" if limits.get("min_gain") else "quick" if limits.get("beat_baseline") else None
        )
    known = (
        None
        if mode is None
        else load_settings(None, options={"baseline": {"mode": mode}}).baseline.mode
    )
    if known is not None and not list_gates(given_limits):
        _check_gates(gates, known)
    return finish_entry(parent, number, model, settings, known, task=task)


def _replace_formats(had: ExportSettings, formats: Sequence[str]) -> ExportSettings:
    """These files instead; rounded ones stay where there are packed ones."""
    asked = update_export(had, formats=formats, weight_storage=())
    rounded = any(find_format(name).can_be_rounded for name in asked.formats)
    return update_export(asked, weight_storage=had.weight_storage if rounded else ())


def finish_entry(
    parent: RunDirectory,
    number: int,
    model: Path,
    settings: Settings,
    mode: BaselineMode | None,
    exactly: bool = False,
    task: CustomTask | None = None,
) -> RunResult:
    """Fine-tune, export, validate and report an entry; `exactly`: with these files and no others."""
    prepare.check_same_task(parent, task)
    progress = parent.progress
    workspace = RunDirectory(
        parent.picked_directory(number), progress, parent, settings.log.tensorboard
    )
    kept = workspace.saved_threads() or parent.saved_threads()
    with threads.use_threads(settings.train.threads, kept, progress.say):
        entries = learn_thresholds.load_trail(parent).trail
        parent.check_trail()
        learned = ThresholdLearningResult(
            tuple(replace(e, file=workspace.relative_name(parent.path(e.file))) for e in entries)
        )
        entry = select_entry.find_entry(learned, number)
        job, original = prepare.prepare(read_model_file(model), settings, workspace, task)
        job = defaults.load_defaults(job, original, parent)
        identity = prepare.run_identity(job.network.file, job.data, settings)
        parent.check_identity(identity)
        elements = sum(k.elements for k in job.network.layer_weights)
        point = BaselineSpec(round(elements / entry.compression), entry.epoch + job.finetune_epochs)
        points = [
            baseline.point_key(n, settings.baseline.exclude_classifier)
            for n in range(1, MAX_POINTS + 1)
        ]
        fits = _is_comparable(_load_baseline_spec(parent, points[0]), point, settings.method)
        told = None
        if mode is None:
            mode = _trained_mode(
                parent if fits else workspace, points, settings.baseline.exclude_classifier
            )
            if mode == "none":
                remedy = (
                    f"--baseline quick trains one ({_describe_cost(parent, point, job.epochs)})"
                )
                told = f"No baseline: the run has none of this size; {remedy}"
            _check_gates(settings.gates, mode)
        compared = settings.baseline.model_copy(update={"mode": mode})
        settings = settings.model_copy(update={"baseline": compared})
        check_baseline_mode(settings)
        job = replace(job, settings=job.settings.model_copy(update={"baseline": compared}))
        with workspace.lock():
            going_on = workspace.has_same_run({**identity, "entry": number})
            if done := load_finished_run(job, model, going_on, exactly):
                return done
            if going_on:
                progress.say(f"Going on in {workspace.root}")
            else:
                workspace.begin_run({**identity, "entry": number})
            workspace.save_inputs(model, settings, job.task.metric)
            workspace.update_manifest(threads=threads.current_threads())
            if mode != "none" and fits:
                for name in (
                    *points,
                    baseline.point_key(baseline.UNSTRUCTURED, settings.baseline.exclude_classifier),
                ):
                    workspace.inherit_weights(name)
                told = "The baseline is the run's own: as many nonzeros, and trained as long"
            if told:
                progress.say(told)
            trained = (
                baseline.planned_epochs(job, point.epochs) if mode != "none" and not fits else {}
            )
            announce_plan(job, {"finetune": job.finetune_epochs, **trained})
            return finish_candidate(job, original, learned, entry)


def _trained_mode(
    run: RunDirectory, points: Sequence[str], spares_classifier: bool
) -> BaselineMode:
    """How much of the baseline a run has trained; a curve may have ended at its first point."""
    there = [run.load_weights_metadata(name) is not None for name in points[:2]]
    if not there[0]:
        return "none"
    run.load_inputs()
    proof = run.manifest.proof
    whole = proof and proof.baseline == BaselineSettings(
        mode="curve", exclude_classifier=spares_classifier
    )
    return "curve" if there[1] or whole else "quick"


def _check_gates(gates: GateSettings, mode: BaselineMode) -> None:
    """Refuse gates of the run that need more of a baseline than there is."""
    needs = [
        (
            "beat_baseline",
            gates.beat_baseline and mode == "none",
            "a baseline of this size",
            "quick",
        )
    ]
    needs += [
        (
            "min_gain",
            gates.min_gain is not None and mode in ("quick", "none"),
            "the curve of a baseline",
            "curve",
        )
    ]
    for name, lacking, what, remedy in needs:
        if lacking:
            raise InputError(
                f"the run's gate {name} needs {what}, and there is none",
                f"--baseline {remedy} trains one; or give this entry gates of its own, such as --max-drop",
            )


def _load_baseline_spec(run: RunDirectory, name: str) -> BaselineSpec | None:
    """The baseline that a run has trained."""
    found = load_network_info(run, name)
    return None if found is None else BaselineSpec(found.nonzeros, sum(found.epochs.values()))


def _is_comparable(known: BaselineSpec | None, point: BaselineSpec, method: MethodSettings) -> bool:
    """Whether a baseline is one of this point; in blocks it may have a few weights less."""
    if known is None or known.epochs != point.epochs:
        return False
    return 0 <= point.nonzeros - known.nonzeros < (1 if method.block is None else BLOCK_SIZE)


def _describe_cost(run: RunDirectory, point: BaselineSpec, learning: int) -> str:
    """What training a baseline takes, by what so many epochs of learning took in the run."""
    seconds = run.manifest.timings.get("learn", 0.0) / learning * point.epochs
    about = f"about {round(seconds / 60)} min" if seconds >= 90 else "a minute or so"
    return f"{pluralize(point.epochs, 'epoch')}, {about}"
