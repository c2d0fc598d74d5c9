"""The order of the stages: import, learn, prune, fine-tune, export, validate, baseline, report.

Every process of a run walks this page; only the leader measures files, writes and reports. Training phases go on from
their own checkpoints, so a run that is started again walks the same path and only does what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltp_pipeline import ranks, threads
from ltp_pipeline.config import Settings, check_reachable
from ltp_pipeline.data.stand_ins import met_broken
from ltp_pipeline.outcome import BASELINE_FOLDER, Outcome, conclude, finished_already, outcome_of_leader
from ltp_pipeline.progress import Reporter
from ltp_pipeline.records import Learned, Measured, Original, Pruned, State, TrailEntry, Weights
from ltp_pipeline.stages import (
    baseline,
    export,
    import_model,
    learn_thresholds,
    preflight,
    select_entry,
    validate,
)
from ltp_pipeline.stages.import_model.parity_inputs import as_input
from ltp_pipeline.stages.import_model.tensors import array_to_torch
from ltp_pipeline.stages.lower import as_file_types, lift, lower
from ltp_pipeline.stages.preflight import notes
from ltp_pipeline.stages.prune import masks_of
from ltp_pipeline.stages.report.build import Findings, build, picture_weights
from ltp_pipeline.stages.select_entry import Selected
from ltp_pipeline.stages.train import Job
from ltp_pipeline.workspace import Workspace, check_writable

if TYPE_CHECKING:
    from torch import Tensor

LEFT_OUT = "left out by --no-baseline"
NOT_PICKED = "none was trained for this entry of the trail; `ltp-pipeline pick --baseline` trains one"
PROOF_SAMPLES = 4  # on which exported files must give the bits of the dense one


def run(
    model: Path, settings: Settings, out: Path, progress: Reporter, fresh: bool = False, exactly: bool = False
) -> Outcome:
    """Prune, prove and report one model; a finished run may have more files than asked for, unless `exactly` these."""
    check_writable(out)
    check_reachable(settings)
    preflight.refuse_inputs_inside(out, model, settings)
    workspace = Workspace(out, progress, events=settings.log.tensorboard)
    with threads.used(settings.train.threads, workspace.kept_threads(fresh), progress.say):
        job, original = preflight.prepare(import_model.read(model), settings, workspace)
        with workspace.held():
            return _run(job, original, model, fresh, exactly)


def _run(job: Job, original: State, model: Path, fresh: bool, exactly: bool) -> Outcome:
    workspace, settings = job.workspace, job.settings
    identity = preflight.identity(job.network.file, job.data, settings)
    going_on = not fresh and workspace.holds(identity)
    if done := finished_already(job, model, going_on, exactly):
        return done
    ranks.start()
    accuracy = preflight.original_accuracy(job, original)  # before anything is written or removed
    if not going_on:
        workspace.begin(identity)
    workspace.remember_inputs(model, settings, job.task.metric.name)
    workspace.keep_threads(threads.current())
    job = preflight.with_strength(job, original, accuracy)
    epochs = {"learn": job.epochs, "finetune": job.finetune_epochs}
    compared = {"baseline": sum(epochs.values())} if settings.baseline.enabled else {}
    plan(job, {**epochs, **compared}, search=settings.budget.accuracy_budget is not None)
    if going_on:
        workspace.progress.say(f"Going on with the run in {workspace.root}")
    else:
        notes.warn(job, original, accuracy)
    if workspace.done("learn"):
        return complete(job, original, learn_thresholds.recall(workspace))
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
        selected, tuned, weights = _select(job, learned, entry, measured)
    pruned, compared = _prove(job, "pruned", tuned, weights, reference), None
    pictures = picture_weights(job.network, weights, selected.entry.thresholds)
    nonzeros, epochs = tuned.nonzeros, sum(tuned.epochs.values())
    del tuned, weights  # the baseline needs the memory
    if settings.baseline.enabled:
        with _timed(workspace, "baseline"):
            plain = _baseline(job, original, nonzeros, epochs)
        compared = _prove(job, "baseline", *plain, reference)
    if not ranks.is_leader():
        return outcome_of_leader(job)
    assert measured is not None  # noqa: S101 - the leader has measured
    assert pruned is not None  # noqa: S101 - the leader has measured
    findings = Findings(
        network=job.network,
        data=job.data,
        settings=settings,
        original=measured,
        learned=learned,
        chosen=selected.entry,
        pruned=pruned,
        baseline=compared,
        weights=pictures,
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
    return conclude(build(findings), settings, workspace)


def _select(
    job: Job, learned: Learned, entry: TrailEntry | None, original: Original | None
) -> tuple[Selected, Pruned, Weights]:
    """The fine-tuned network of an entry, or of the one that the budget tells."""
    if kept := job.workspace.load_weights("pruned"):
        meta = kept[1]
        selected = Selected(select_entry.find(learned, meta["entry"]), meta["notes"], meta["missed"])
        return selected, *_recalled(job, *kept)
    if entry is None:
        selected, tuned = select_entry.run(job, learned, _least(job, original))
    else:
        selected, tuned = Selected(entry, [f"entry {entry.entry} of the trail"]), select_entry.finish(job, entry)
    told = {"entry": selected.entry.entry, "notes": selected.notes, "missed": selected.missed}
    return selected, tuned, _keep(job, "pruned", tuned, told)


def _least(job: Job, original: Original | None) -> float | None:
    """Lowest validation accuracy within the budget, from the original's as the leader measured it."""
    budget = job.settings.budget.accuracy_budget
    measured = 0.0 if original is None else original.validation_accuracy
    return None if budget is None else ranks.from_leader(measured, job.device) - budget


def _baseline(job: Job, original: State, nonzeros: int, epochs: int) -> tuple[Pruned, Weights]:
    """Global magnitude pruning to as many nonzeros, trained as long."""
    if kept := job.workspace.load_weights("baseline"):
        return _recalled(job, *kept)
    plain = baseline.run(job, original, nonzeros, epochs)
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
    state = lift(job, weights)
    return Pruned(state, masks_of(job.network, state), meta["nonzeros"], meta["epochs"]), weights


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


def plan(job: Job, epochs: Mapping[str, int], search: bool = False) -> None:
    """Tell who shows progress what is ahead, so that the time left can be that of the whole run."""
    steps = {name: count * job.steps_per_epoch for name, count in epochs.items() if count}
    job.workspace.progress.plan(steps, search)


@contextmanager
def _timed(workspace: Workspace, stage: str) -> Iterator[None]:
    begun = time.monotonic()
    try:
        yield
    finally:
        workspace.add_time(stage, time.monotonic() - begun)
