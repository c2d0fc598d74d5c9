"""The order of the stages: import, learn, prune, fine-tune, export, validate, baseline, report.

Every process of a run walks this page; only the leader measures files, writes and reports. Training phases go on from
their own checkpoints, so a run that is started again walks the same path and only does what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltp_pipeline import ranks, report_io, threads
from ltp_pipeline.config import ExportSettings, Settings, check_reachable
from ltp_pipeline.data.stand_ins import met_broken
from ltp_pipeline.errors import InputError
from ltp_pipeline.gates import evaluate_gates, with_verdicts
from ltp_pipeline.hashing import sha256_of
from ltp_pipeline.progress import Reporter
from ltp_pipeline.records import Learned, Measured, Original, Pruned, State, TrailEntry, Weights
from ltp_pipeline.report_parts import Verdict
from ltp_pipeline.report_schema import Report
from ltp_pipeline.stages import (
    baseline,
    export,
    handoff,
    import_model,
    learn_thresholds,
    preflight,
    report,
    select_entry,
    validate,
)
from ltp_pipeline.stages.import_model.parity_inputs import as_input
from ltp_pipeline.stages.import_model.tensors import array_to_torch
from ltp_pipeline.stages.lower import as_file_types, lift, lower
from ltp_pipeline.stages.preflight import notes
from ltp_pipeline.stages.report.build import Findings, build, picture_weights
from ltp_pipeline.stages.select_entry import Selected
from ltp_pipeline.stages.train import Job
from ltp_pipeline.workspace import REPORT_JSON, SUMS, Workspace, check_writable

if TYPE_CHECKING:
    from torch import Tensor

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
    preflight.refuse_inputs_inside(out, model, settings)
    workspace = Workspace(out, progress, events=settings.log.tensorboard)
    with threads.used(settings.train.threads, workspace.kept_threads(fresh), progress.say), workspace.held():
        job, original = preflight.prepare(import_model.read(model), settings, workspace)
        ranks.start()
        identity = preflight.identity(job.network.file, job.data, settings)
        going_on = not fresh and workspace.holds(identity)
        if done := finished_already(job, model, going_on, exactly):
            return done
        accuracy = preflight.original_accuracy(job, original)  # an error here leaves everything as it was
        if not going_on:
            workspace.begin(identity)
        workspace.remember_inputs(model, settings, job.task.metric.name)
        workspace.keep_threads(threads.current())
        job = preflight.with_strength(job, original, accuracy)
        epochs = {"learn": job.epochs, "finetune": job.finetune_epochs}
        compared = {"baseline": sum(epochs.values())} if settings.baseline.enabled else {}
        plan(job, {**epochs, **compared}, search=settings.budget.accuracy_budget is not None)
        if going_on:
            progress.say(f"Going on with the run in {workspace.root}")
        else:
            notes.warn(job, original, accuracy)
        with _timed(workspace, "learn"):
            learned = learn_thresholds.run(job, original, accuracy)
        return complete(job, original, learned)


def complete(job: Job, original: State, learned: Learned, entry: TrailEntry | None = None) -> Outcome:
    """From the trail to the report: fine-tune an entry, export and measure it, and the same with the baseline.

    Without an entry, the budget tells which. What was trained before is taken from the run directory.
    """
    workspace, settings = job.workspace, job.settings
    measured, reference = None, None
    if ranks.is_leader():
        with _timed(workspace, "original"):
            measured, reference = validate.measure_original(job)
    with _timed(workspace, "finetune"):
        selected, weights = _select(job, learned, entry, measured)
    tuned, compared = selected.tuned, None
    pruned = _prove(job, "pruned", tuned, weights, reference)
    if settings.baseline.enabled:
        with _timed(workspace, "baseline"):
            compared = _prove(job, "baseline", *_baseline(job, original, tuned), reference)
    if not ranks.is_leader():
        return _of_leader(job)
    assert measured is not None  # noqa: S101 - the leader has measured
    assert pruned is not None  # noqa: S101
    kernels = [k.name for k in job.network.kernels]
    before = {name: job.network.file.model.array(name) for name in kernels}
    findings = Findings(
        network=job.network,
        data=job.data,
        settings=settings,
        original=measured,
        learned=learned,
        chosen=selected.entry,
        pruned=pruned,
        baseline=compared,
        weights=picture_weights(job.network, before, weights, selected.entry.thresholds),
        device=job.device.type,
        task=job.task,
        timings=workspace.timings,
        notes=[
            *notes.about_metric(job),
            *notes.doubts(job, measured.validation_accuracy),
            *selected.notes,
            *met_broken(job.data),
        ],
        budget_missed=selected.missed,
        no_baseline=None if compared else LEFT_OUT if workspace.parent is None else NOT_PICKED,
    )
    return conclude(build(findings), job)


def _select(
    job: Job, learned: Learned, entry: TrailEntry | None, original: Original | None
) -> tuple[Selected, Weights]:
    """The fine-tuned network of an entry, or of the one that the budget tells."""
    if kept := job.workspace.load_weights("pruned"):
        meta = kept[1]
        tuned, weights = _recalled(job, *kept)
        return Selected(select_entry.find(learned, meta["entry"]), tuned, meta["notes"], meta["missed"]), weights
    if entry is None:
        selected = select_entry.run(job, learned, _least(job, original))
    else:
        selected = Selected(entry, select_entry.finish(job, entry), [f"entry {entry.entry} of the trail"])
    notes = {"entry": selected.entry.entry, "notes": selected.notes, "missed": selected.missed}
    return selected, _keep(job, "pruned", selected.tuned, notes)


def _least(job: Job, original: Original | None) -> float | None:
    """Lowest validation accuracy within the budget, from the original's as the leader measured it."""
    budget = job.settings.budget.accuracy_budget
    measured = 0.0 if original is None else original.validation_accuracy
    return None if budget is None else ranks.from_leader(measured, job.device) - budget


def _baseline(job: Job, original: State, tuned: Pruned) -> tuple[Pruned, Weights]:
    """Global magnitude pruning to as many nonzeros, trained as long."""
    if kept := job.workspace.load_weights("baseline"):
        return _recalled(job, *kept)
    plain = baseline.run(job, original, tuned.nonzeros, sum(tuned.epochs.values()))
    return plain, _keep(job, "baseline", plain, {})


def _keep(job: Job, name: str, tuned: Pruned, more: Mapping[str, Any]) -> Weights:
    """Keep the final weights of a network, so that later commands need not train."""
    weights = lower(job.network, tuned.state)
    meta = {"epochs": dict(tuned.epochs), "nonzeros": tuned.nonzeros, **more}
    job.workspace.save_weights(name, {n: array_to_torch(array) for n, array in weights.items()}, meta)
    return weights


def _recalled(job: Job, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> tuple[Pruned, Weights]:
    """A network whose final weights were kept."""
    weights = as_file_types(job.network, tensors)
    return Pruned(lift(job, weights), {}, meta["nonzeros"], meta["epochs"]), weights


def _prove(
    job: Job, name: str, tuned: Pruned, weights: Weights, reference: validate.Reference | None
) -> Measured | None:
    """Export a network and measure its files; the leader does."""
    if reference is None:
        return None
    file, shown = job.network.file, job.data.test.first(PROOF_SAMPLES).inputs
    feeds = {i.name: as_input(i, shown[i.name]) for i in file.inputs}
    kernels = [k.name for k in job.network.kernels]
    folder = BASELINE_FOLDER if name == "baseline" else ""
    with _timed(job.workspace, "export"):
        files = export.run(file, weights, kernels, job.settings.export, job.workspace, feeds, folder)
    with _timed(job.workspace, "validate"):
        return validate.run(files, job.network, tuned.state, reference, job.data.test, tuned.epochs)


def finished_already(job: Job, model: Path, is_there: bool, exactly: bool = False) -> Outcome | None:
    """Where the run has all that is asked for now, judge its gates again; all processes are told."""
    workspace, settings, outcome = job.workspace, job.settings, None
    if ranks.is_leader() and is_there:
        done = workspace.done("report")
        enough = done is not None and (done == _asked(settings) if exactly else _covers(done, settings))
        if done and enough and _is_whole(workspace):
            had = ExportSettings.model_validate(done["export"])  # `export` may have added files
            workspace.remember_inputs(model, settings.model_copy(update={"export": had}), job.task.metric.name)
            workspace.progress.say(f"{workspace.root} is finished already; the gates are judged again")
            outcome = write_verdicts(report_io.read(workspace.path(REPORT_JSON)), job)
    if not ranks.from_leader(float(outcome is not None), job.device):
        return None
    return outcome or _of_leader(job)


def _of_leader(job: Job) -> Outcome:
    """The outcome that the leader has written."""
    ranks.wait()
    content = report_io.read(job.workspace.path(REPORT_JSON))
    return Outcome(job.workspace.root, content, evaluate_gates(content, job.settings.gates))


def plan(job: Job, epochs: Mapping[str, int], search: bool = False) -> None:
    """Tell who shows progress what is ahead, so that the time left can be that of the whole run."""
    steps = {name: count * job.steps_per_epoch for name, count in epochs.items() if count}
    job.workspace.progress.plan(steps, search)


def conclude(content: Report, job: Job) -> Outcome:
    """Judge what was just proven; files of an earlier call that were not proven now are removed."""
    workspace = job.workspace
    for folder in ("", BASELINE_FOLDER):
        for name in workspace.keep_models(folder, [file.path for file in content.files]):
            workspace.progress.say(f"Removed {name}, which was not asked for now")
    outcome = write_verdicts(content, job)
    workspace.mark_done("report", _asked(job.settings))
    ranks.wait()
    return outcome


def write_verdicts(content: Report, job: Job) -> Outcome:
    """Judge the gates by the files asked for, put the verdict into the report and write it."""
    gates, asked, root = job.settings.gates, job.settings.export.formats, job.workspace.root
    pruned = content.pruned.model_copy(update={"files": tuple(f for f in content.pruned.files if f.name in asked)})
    verdicts = evaluate_gates(content.model_copy(update={"pruned": pruned}), gates)
    limits = {**content.settings, "gates": gates.model_dump(mode="json")}
    content = with_verdicts(content.model_copy(update={"settings": limits}), verdicts)
    report.write(content, job.workspace)
    handoff.run(content, root, root / handoff.FOLDER)
    return Outcome(root, content, verdicts)


def _is_whole(workspace: Workspace) -> bool:
    """Whether the report and every file it names are there, unchanged."""
    path, sums = workspace.path(REPORT_JSON), workspace.path(SUMS)
    try:
        content = report_io.read(path)
    except InputError:
        return False
    if not sums.is_file() or sha256_of(path) not in sums.read_text(encoding="utf-8", errors="replace"):
        return False
    paths = [(workspace.path(name), digest) for file in content.files for name, digest in file.hashes.items()]
    return all(path.is_file() and sha256_of(path) == digest for path, digest in paths)


def _asked(settings: Settings) -> dict[str, Any]:
    """What the proof of a run consists of; another wish has it done again, without training anew."""
    return {"export": settings.export.model_dump(mode="json"), "baseline": settings.baseline.enabled}


def _covers(done: Mapping[str, Any], settings: Settings) -> bool:
    """Whether a proof has all that is asked for; it may have more."""
    had = ExportSettings.model_validate(done["export"])
    return had.covers(settings.export) and settings.baseline.enabled <= done["baseline"]


@contextmanager
def _timed(workspace: Workspace, stage: str) -> Iterator[None]:
    begun = time.monotonic()
    try:
        yield
    finally:
        workspace.add_time(stage, time.monotonic() - begun)
