"""What is done with a run that is there: finish another entry of its trail, write further files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ltp_pipeline import exporters, preparation, ranks, report_io, threads
from ltp_pipeline.config import BaselineSettings, Settings, load_settings
from ltp_pipeline.errors import InputError, LtpError
from ltp_pipeline.gates import effective_limits, gate_settings
from ltp_pipeline.progress import Reporter
from ltp_pipeline.records import LearnedThresholds, Original
from ltp_pipeline.runner import Outcome, concluded, finished_already, plan, prove, run
from ltp_pipeline.stages import baseline as magnitude
from ltp_pipeline.stages import choose, import_model, learn_thresholds
from ltp_pipeline.words import counted
from ltp_pipeline.workspace import REPORT_JSON, Workspace


@dataclass(frozen=True)
class Point:
    """What a baseline is comparable by: nonzeros of all kernels, and epochs of training in total."""

    nonzeros: int
    epochs: int


def export_again(
    folder: Path,
    formats: Sequence[str],
    progress: Reporter,
    deploy: bool | None = None,
    values: Sequence[str] | None = None,
) -> Outcome:
    """Write and prove further files of a finished run; training is taken from its checkpoints."""
    workspace = Workspace(folder, progress)
    model, settings = workspace.inputs()
    known = [*settings.export.formats, *(f for f in formats if f not in settings.export.formats)]
    if values is not None and set(values) != {"exact"}:
        values = [*settings.export.values, *(v for v in values if v not in settings.export.values)]
    asked = with_formats(settings, known, deploy, values)
    if workspace.done("report") is None:
        how = "run" if workspace.entry is None else "pick"
        raise InputError(f"{folder} is not finished", f"start the same `{how}` again: it goes on where it stopped")
    try:
        if workspace.entry is not None:
            return _finish(workspace.run_of(), workspace.entry, model, asked, asked.baseline.enabled, exactly=True)
        return run(model, asked, folder, progress, exactly=True)
    except LtpError:
        workspace.inputs()
        workspace.remember_inputs(model, settings)  # what could not be written is not asked for again
        raise


def with_formats(
    settings: Settings, formats: Sequence[str], deploy: bool | None = None, values: Sequence[str] | None = None
) -> Settings:
    """The same settings with other files asked for."""
    unknown = [f for f in formats if f not in exporters.FORMATS]
    if unknown:
        raise InputError(f"there is no format {unknown[0]!r}", f"formats: {', '.join(exporters.FORMATS)}")
    given = {"formats": tuple(formats), "deploy": deploy, "values": values}
    asked = settings.export.model_dump() | {key: value for key, value in given.items() if value is not None}
    return settings.model_copy(update={"export": load_settings(None, options={"export": asked}).export})


def pick(
    folder: Path,
    number: int,
    progress: Reporter,
    formats: Sequence[str] = (),
    baseline: bool | None = None,
    limits: Mapping[str, Any] | None = None,
) -> Outcome:
    """Finish another entry of a run's trail: fine-tune, export, validate and report it in a folder of its own.

    It is judged by the `limits` given, or else by those of the run. Without a word about the baseline, the run's own is
    taken where it fits.
    """
    if ranks.together():
        raise InputError("only `run` trains with several processes", "start `pick` without torchrun")
    given = Workspace(folder, progress)
    given.inputs()
    parent = given.run_of()
    model, settings = parent.inputs()
    if formats:
        settings = with_formats(settings, formats, values=None if "packed" in formats else ())
    gates = effective_limits(gate_settings(limits or {}), settings.gates.model_dump())
    settings = settings.model_copy(update={"gates": gates})
    if baseline is None and (limits or {}).get("beat_baseline"):
        baseline = True  # there is no other way to tell
    return _finish(parent, number, model, settings, baseline)


def _finish(
    parent: Workspace,
    number: int,
    model: Path,
    settings: Settings,
    baseline: bool | None,
    exactly: bool = False,
) -> Outcome:
    workspace = Workspace(parent.picked_folder(number), parent.progress, parent, settings.log.tensorboard)
    kept = workspace.kept_threads() or parent.kept_threads()
    with threads.used(settings.train.threads, kept, parent.progress.say):
        return _finish_with_threads(parent, workspace, number, model, settings, baseline, exactly)


def _finish_with_threads(
    parent: Workspace,
    workspace: Workspace,
    number: int,
    model: Path,
    settings: Settings,
    baseline: bool | None,
    exactly: bool,
) -> Outcome:
    progress = parent.progress
    entries = learn_thresholds.recall(parent).trail
    learned = LearnedThresholds(tuple(replace(e, file=workspace.relative(parent.path(e.file))) for e in entries))
    entry = choose.find(learned, number)
    file = import_model.read(model)
    training = preparation.prepare(file, settings, workspace)
    training = training if parent.strength is None else replace(training, strength=parent.strength)
    identity = preparation.identity(file, training.data, settings)
    parent.require_same(identity)
    elements = sum(k.elements for k in training.imported.kernels)
    point = Point(round(elements / entry.compression), entry.epoch + training.finetune_epochs)
    fits = _baseline_of(parent) == point
    told = None
    remedy = f"--baseline trains one ({_cost(parent, point, training.epochs)})"
    if baseline is None:
        baseline = fits or _has_baseline(workspace)
        told = None if baseline else f"No baseline: the run has none of this size; {remedy}"
    if settings.gates.beat_baseline and not baseline:
        what = "the run's gate beat_baseline needs a baseline of this size, and there is none"
        raise InputError(what, f"{remedy}; or give this entry gates of its own, such as --max-drop")
    settings = settings.model_copy(update={"baseline": BaselineSettings(enabled=baseline)})

    def finished(original: Original) -> choose.Chosen:
        del original
        tuned = choose.finish(entry, training, training.finetune_epochs)
        return choose.Chosen(entry, tuned, [f"entry {number} of the trail"])

    with workspace.held():
        going_on = workspace.open({**identity, "entry": number})
        done = finished_already(model, settings, training.metric.name, workspace, exactly)
        if done is not None:
            return done
        if going_on:
            progress.say(f"Going on in {workspace.root}")
        adopted = baseline and fits and workspace.adopt_state(magnitude.KEY)
        if adopted:
            told = "The baseline is the run's own: as many nonzeros, and trained as long"
        if told:
            progress.say(told)
        workspace.keep_threads(threads.current())
        plan(
            training,
            {"finetune": training.finetune_epochs, "baseline": point.epochs if baseline and not adopted else 0},
        )
        return concluded(prove(training, settings, learned, finished), settings, workspace)


def _baseline_of(run: Workspace) -> Point | None:
    """The baseline that a finished run has trained."""
    if not run.has_state(magnitude.KEY) or not _has_baseline(run):
        return None
    found = report_io.read(run.path(REPORT_JSON)).baseline
    if found is None or found.epochs is None or found.nonzeros is None:
        return None
    return Point(found.nonzeros, found.epochs.prune + found.epochs.finetune)


def _has_baseline(workspace: Workspace) -> bool:
    if workspace.is_run:
        workspace.inputs()
    done = workspace.done("report")
    return done is not None and bool(done["baseline"])


def _cost(run: Workspace, point: Point, learning: int) -> str:
    """What training a baseline takes, by what so many epochs of learning took in the run."""
    seconds = run.timings.get("learn", 0.0) / learning * point.epochs
    about = f"about {round(seconds / 60)} min" if seconds >= 90 else "a minute or so"
    return f"{counted(point.epochs, 'epoch')}, {about}"
