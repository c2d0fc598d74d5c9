"""The order of the stages: import, learn, prune, fine-tune, export, validate, baseline, report.

Training phases go on from their own checkpoints, so a run that is started again walks the same path and only does what
is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline import exporters, preparation, ranks, report_io, threads
from ltp_pipeline.config import ExportSettings, Settings, check_reachable
from ltp_pipeline.data.stand_ins import met_broken
from ltp_pipeline.errors import InputError
from ltp_pipeline.gates import evaluate_gates, with_verdicts
from ltp_pipeline.hashing import sha256_of
from ltp_pipeline.progress import Reporter
from ltp_pipeline.records import LearnedThresholds, ModelFile, Original
from ltp_pipeline.report_parts import Verdict
from ltp_pipeline.report_schema import Report
from ltp_pipeline.stages import baseline, choose, export, handoff, import_model, learn_thresholds, report, validate
from ltp_pipeline.stages.report.build import Findings, build, picture_weights
from ltp_pipeline.stages.training import Training
from ltp_pipeline.workspace import REPORT_JSON, SUMS, Workspace, check_writable

if TYPE_CHECKING:
    from ltp_pipeline.records import Array

    Finish = Callable[[Original], choose.Chosen]

BASELINE_FOLDER = "baseline"
LEFT_OUT = "left out by --no-baseline"
NOT_PICKED = "none was trained for this entry of the trail; `ltp-pipeline pick --baseline` trains one"
PROOF_SAMPLES = 4  # on which exported files must give the bits of the dense one


@dataclass(frozen=True)
class Outcome:
    """A finished run: its directory, its report and the verdicts of its gates."""

    folder: Path
    report: Report
    verdicts: list[Verdict]


def run(
    model: Path, settings: Settings, out: Path, progress: Reporter, fresh: bool = False, exactly: bool = False
) -> Outcome:
    """Prune, prove and report one model; a finished run may have more files than asked for, unless `exactly` these."""
    check_writable(out)
    check_reachable(settings)
    preparation.refuse_inputs_inside(out, model, settings)
    workspace = Workspace(out, progress, events=settings.log.tensorboard)
    with threads.used(settings.train.threads, workspace.kept_threads(fresh), progress.say):
        return _run(model, settings, workspace, fresh, exactly)


def _run(model: Path, settings: Settings, workspace: Workspace, fresh: bool, exactly: bool) -> Outcome:
    file = import_model.read(model)
    training = preparation.prepare(file, settings, workspace)
    ranks.start()
    if not ranks.leads():
        _help(training, settings, fresh)
        ranks.wait()
        content = report_io.read(workspace.path(REPORT_JSON))
        return Outcome(workspace.root, content, evaluate_gates(content, settings.gates))
    with workspace.held():
        outcome = _lead(model, file, settings, training, fresh, exactly)
    ranks.wait()
    return outcome


def _lead(model: Path, file: ModelFile, settings: Settings, training: Training, fresh: bool, exactly: bool) -> Outcome:
    workspace = training.workspace
    progress = workspace.progress
    accuracy = preparation.original_accuracy(training, settings) if fresh else None  # before anything is removed
    going_on = workspace.open(preparation.identity(file, training.data, settings), fresh)
    finished = finished_already(model, settings, training.metric.name, workspace, exactly)
    ranks.from_leader(float(finished is not None), training.device)
    if finished is not None:
        return finished
    workspace.keep_threads(threads.current())
    try:
        accuracy = preparation.original_accuracy(training, settings) if accuracy is None else accuracy
    except InputError:
        if not going_on:
            workspace.abandon()
        raise
    training = preparation.with_strength(training, settings, accuracy)
    epochs = {"learn": training.epochs, "finetune": training.finetune_epochs}
    compared = {"baseline": sum(epochs.values())} if settings.baseline.enabled else {}
    plan(training, {**epochs, **compared}, search=settings.budget.accuracy_budget is not None)
    if going_on:
        progress.say(f"Going on with the run in {workspace.root}")
    else:
        preparation.warn(training, accuracy, settings)
    return concluded(_train_and_prove(training, settings, accuracy), settings, workspace)


def finished_already(
    model: Path, settings: Settings, metric: str, workspace: Workspace, exactly: bool = False
) -> Outcome | None:
    """Remember what the run is asked for now; where it has all of that, judge its gates again, else None."""
    done = workspace.done("report")
    enough = done is not None and (done == _asked(settings) if exactly else _covers(done, settings))
    whole = enough and _is_whole(workspace)
    had = ExportSettings.model_validate(done["export"]) if done and whole else settings.export  # `export` may add
    workspace.remember_inputs(model, settings.model_copy(update={"export": had}), metric)
    if not whole:
        return None
    workspace.progress.say(f"{workspace.root} is finished already; the gates are judged again")
    return write_verdicts(report_io.read(workspace.path(REPORT_JSON)), settings, workspace)


def plan(training: Training, epochs: Mapping[str, int], search: bool = False) -> None:
    """Tell who shows progress what is ahead, so that the time left can be that of the whole run."""
    steps = {name: count * training.steps_per_epoch for name, count in epochs.items() if count}
    training.workspace.progress.plan(steps, search)


def _help(training: Training, settings: Settings, fresh: bool) -> None:
    """Take part in all training of a run that another rank leads."""
    accuracy = preparation.original_accuracy(training, settings) if fresh else None
    if ranks.from_leader(0.0, training.device):
        return
    accuracy = preparation.original_accuracy(training, settings) if accuracy is None else accuracy
    training = preparation.with_strength(training, settings, accuracy)
    learned = learn_thresholds.run(training.imported, training, settings, accuracy)
    least = _least(settings, 0.0, training)
    tuned = choose.run(learned, training, training.finetune_epochs, least).tuned
    if settings.baseline.enabled:
        baseline.run(sum(tuned.nonzeros.values()), sum(tuned.epochs.values()), training)


def _least(settings: Settings, original: float, training: Training) -> float | None:
    """Lowest validation accuracy within the budget, from the original's as the leader measured it."""
    budget = settings.budget.accuracy_budget
    return None if budget is None else ranks.from_leader(original, training.device) - budget


def concluded(content: Report, settings: Settings, workspace: Workspace) -> Outcome:
    """Judge what was just proven; files of an earlier call that were not proven now are removed."""
    for folder in ("", BASELINE_FOLDER):
        for name in workspace.keep_models(folder, [file.path for file in content.files]):
            workspace.progress.say(f"Removed {name}, which was not asked for now")
    outcome = write_verdicts(content, settings, workspace)
    workspace.mark_done("report", _asked(settings))
    return outcome


def write_verdicts(content: Report, settings: Settings, workspace: Workspace) -> Outcome:
    """Judge the gates by the files asked for, put the verdict into the report and write it."""
    gates, export = settings.gates, settings.export
    asked = {*export.formats, *(f"deploy-{name}" for name in export.formats if export.deploy)}
    pruned = content.pruned.model_copy(update={"files": tuple(f for f in content.pruned.files if f.name in asked)})
    verdicts = evaluate_gates(content.model_copy(update={"pruned": pruned}), gates)
    limits = {**content.settings, "gates": gates.model_dump(mode="json")}
    content = with_verdicts(content.model_copy(update={"settings": limits}), verdicts)
    report.write(content, workspace)
    handoff.run(content, workspace.root, workspace.root / handoff.FOLDER)
    return Outcome(workspace.root, content, verdicts)


def _train_and_prove(training: Training, settings: Settings, accuracy: float) -> Report:
    workspace = training.workspace
    with _timed(workspace, "learn"):
        learned = learn_thresholds.run(training.imported, training, settings, accuracy)

    def finished(original: Original) -> choose.Chosen:
        least = _least(settings, original.validation_accuracy, training)
        return choose.run(learned, training, training.finetune_epochs, least)

    return prove(training, settings, learned, finished)


def prove(training: Training, settings: Settings, learned: LearnedThresholds, finished: Finish) -> Report:
    """Fine-tune, export and validate, then the same with the baseline; everything the report says."""
    imported, data, workspace = training.imported, training.data, training.workspace
    with _timed(workspace, "original"):
        original, session, judge_files = validate.measure_original(training)
    with _timed(workspace, "finetune"):
        entry, tuned, told, missed = finished(original)
    before = exporters.read_tensors(imported.proto, [k.name for k in imported.kernels])
    pictures = picture_weights(imported, before, export.live_arrays(imported), entry.thresholds)
    shown = data.test.read(_first(PROOF_SAMPLES, len(data.test)))
    with _timed(workspace, "export"):
        files = export.run(imported, settings.export, workspace, shown)
    with _timed(workspace, "validate"):
        pruned = validate.run(files, imported, session, judge_files, data.test, tuned.epochs)
    compared = None
    if settings.baseline.enabled:
        with _timed(workspace, "baseline"):
            plain = baseline.run(sum(tuned.nonzeros.values()), sum(tuned.epochs.values()), training)
            files = export.run(imported, settings.export, workspace, shown, BASELINE_FOLDER)
            compared = validate.run(files, imported, session, judge_files, data.test, plain.epochs)
    findings = Findings(
        imported=imported,
        data=data,
        settings=settings,
        original=original,
        learned=learned,
        chosen=entry,
        pruned=pruned,
        baseline=compared,
        weights=pictures,
        device=training.device.type,
        metric=training.metric.name,
        timings=workspace.timings,
        notes=[
            *preparation.about_metric(training),
            *preparation.doubts(training, original.validation_accuracy),
            *told,
            *met_broken(data),
        ],
        budget_missed=missed,
        no_baseline=None if compared else LEFT_OUT if workspace.parent is None else NOT_PICKED,
    )
    return build(findings)


def _is_whole(workspace: Workspace) -> bool:
    """Whether the report and every file it names are there, unchanged."""
    report, sums = workspace.path(REPORT_JSON), workspace.path(SUMS)
    try:
        content = report_io.read(report)
    except InputError:
        return False
    if not sums.is_file() or sha256_of(report) not in sums.read_text(encoding="utf-8", errors="replace"):
        return False
    paths = [(workspace.path(name), digest) for file in content.files for name, digest in file.hashes.items()]
    return all(path.is_file() and sha256_of(path) == digest for path, digest in paths)


def _asked(settings: Settings) -> dict[str, Any]:
    """What the proof of a run consists of; another wish has it done again, without training anew."""
    return {"export": settings.export.model_dump(mode="json"), "baseline": settings.baseline.enabled}


def _covers(done: Mapping[str, Any], settings: Settings) -> bool:
    """Whether a proof has all that is asked for; it may have more."""
    had, asked = done["export"], settings.export
    return (
        set(asked.formats) <= set(had["formats"])
        and asked.deploy <= had["deploy"]
        and set(asked.values) == set(had["values"])  # accuracy is that of the weakest file, which may be a rounded one
        and asked.external_data == had.get("external_data")
        and settings.baseline.enabled <= done["baseline"]
    )


@contextmanager
def _timed(workspace: Workspace, stage: str) -> Iterator[None]:
    begun = time.monotonic()
    try:
        yield
    finally:
        workspace.add_time(stage, time.monotonic() - begun)


def _first(count: int, of: int) -> Array:
    return np.arange(min(count, of))
