"""The order of the stages: import, learn, prune, fine-tune, export, validate, baseline, report.

Training phases go on from their own checkpoints, so a run that is started again walks the same path and only does what
is missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltp_pipeline import exporters
from ltp_pipeline.config import GateSettings, Settings
from ltp_pipeline.data import Data, check_labels, open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.gate import Verdict, judge, read_report
from ltp_pipeline.progress import Reporter
from ltp_pipeline.records import ImportedModel, ModelFile, PrunedModel, TrailEntry
from ltp_pipeline.stages import baseline, export, finetune, import_model, learn_thresholds, prune, report, validate
from ltp_pipeline.stages.learn_thresholds import trail
from ltp_pipeline.stages.report.build import Findings, build, picture_weights
from ltp_pipeline.stages.training import Training, pick_device
from ltp_pipeline.workspace import REPORT_JSON, Workspace, check_writable

if TYPE_CHECKING:
    from ltp_pipeline.records import Array, LearnedThresholds, Original

BASELINE_FOLDER = "baseline"
MOST_ATTEMPTS = 4  # networks of the trail that are fine-tuned in search of the sparsest within an accuracy budget
# What may change between two calls of the same run: nothing that was trained depends on it.
_FREE_SETTINGS = ("gates", "export", "baseline")


@dataclass(frozen=True)
class Outcome:
    """A finished run: its directory, its report and the verdicts of its gates."""

    folder: Path
    report: dict[str, Any]
    verdicts: list[Verdict]


def run(model: Path, settings: Settings, out: Path, progress: Reporter, fresh: bool = False) -> Outcome:
    """Prune, prove and report one model."""
    check_writable(out)
    workspace = Workspace(out, progress)
    file = import_model.read(model)
    data = _open_data(settings, file)
    sample = tuple(data.test.read(_first(1)).shape[1:])
    imported = import_model.run(file, settings.kernels, sample)
    training = _prepare(imported, data, settings, workspace)
    learn_thresholds.make_rule(imported, settings)  # refuses an impossible target before anything is written
    going_on = workspace.open(_identity(file, data, settings), fresh)
    if going_on and _is_finished(workspace, settings):
        progress.say(f"{out} is finished already; the gates are judged again")
        return judged(read_report(workspace.path(REPORT_JSON)), settings.gates, workspace)
    if going_on:
        progress.say(f"Going on with the run in {out}")
    return judged(_train_and_prove(training, settings, workspace), settings.gates, workspace)


def judged(content: dict[str, Any], gates: GateSettings, workspace: Workspace) -> Outcome:
    """Judge the gates, put the verdict into the report and write it."""
    verdicts = judge(content, gates)
    passed = all(v.passed for v in verdicts)
    content["gates"] = [asdict(v) for v in verdicts]
    content["verdict"] = "not-gated" if not verdicts else "passed" if passed else "failed"
    content["settings"]["gates"] = gates.model_dump(mode="json")
    report.write(content, workspace)
    return Outcome(workspace.root, content, verdicts)


def _train_and_prove(training: Training, settings: Settings, workspace: Workspace) -> dict[str, Any]:
    imported, data = training.imported, training.data
    with _timed(workspace, "original"):
        assert imported.file.path is not None  # noqa: S101 - run() reads from a path
        original, session = validate.measure_original(imported.file.path, data)
    notes = _warnings(original, data, workspace)
    with _timed(workspace, "learn"):
        learned = learn_thresholds.run(imported, training, settings)
    with _timed(workspace, "finetune"):
        entry, tuned, told = _finish(training, learned, settings, original)
    before = exporters.read_tensors(imported.proto, [k.name for k in imported.kernels])
    pictures = picture_weights(imported, before, export.live_arrays(imported), learned.thresholds)
    with _timed(workspace, "export"):
        files = export.run(imported, settings.export.formats, workspace)
    with _timed(workspace, "validate"):
        pruned = validate.run(files, imported, session, data.test, tuned.epochs)
    compared = None
    if settings.baseline.enabled:
        with _timed(workspace, "baseline"):
            plain = baseline.run(sum(tuned.nonzeros.values()), sum(tuned.epochs.values()), training)
            files = export.run(imported, settings.export.formats, workspace, BASELINE_FOLDER)
            compared = validate.run(files, imported, session, data.test, plain.epochs)
    findings = Findings(
        imported=imported,
        data=data,
        settings=settings,
        original=original,
        learned=learned,
        chosen=entry.entry,
        pruned=pruned,
        baseline=compared,
        weights=pictures,
        device=training.device.type,
        timings=workspace.timings,
        notes=[*notes, *told],
    )
    content = build(findings)
    workspace.mark_done("report", {"export": list(settings.export.formats), "baseline": settings.baseline.enabled})
    return content


def _finish(
    training: Training, learned: LearnedThresholds, settings: Settings, original: Original
) -> tuple[TrailEntry, PrunedModel, list[str]]:
    """Prune and fine-tune: the last network of the trail, or the sparsest that stays within the accuracy budget."""
    epochs = settings.train.finetune_epochs
    budget = settings.budget.accuracy_budget

    def attempt(entry: TrailEntry) -> PrunedModel:
        pruned = prune.run(entry, training.imported, training.workspace)
        return finetune.run(pruned, training, epochs, key=finetune.key_of(entry))

    if budget is None:
        return learned.trail[-1], attempt(learned.trail[-1]), []
    least = original.validation_accuracy - budget
    entries = sorted(learned.trail, key=lambda e: e.compression)
    position = entries.index(trail.choose(entries, least))
    tried: dict[int, float] = {}
    best: int | None = None
    while 0 <= position < len(entries) and position not in tried and len(tried) < MOST_ATTEMPTS:
        attempt(entries[position])
        tried[position] = training.accuracy(training.data.val)
        holds = tried[position] >= least
        training.workspace.progress.say(
            f"{entries[position].compression:.1f}× fine-tuned: {tried[position]:.2%} on the validation split, "
            f"{'within' if holds else 'outside'} the budget of {least:.2%}"
        )
        if holds:
            best = position if best is None else max(best, position)
            position += 1
        else:
            position -= 1
    notes = [f"tried {entries[p].compression:.1f}×: {a:.2%} on the validation split" for p, a in sorted(tried.items())]
    if best is None:
        best = max(tried, key=lambda p: tried[p])
        notes.append(
            f"the accuracy budget of {budget:g} was not met; the closest network is reported: give more epochs, "
            "a lower learning rate, or a larger budget"
        )
        training.workspace.progress.say(notes[-1])
    return entries[best], attempt(entries[best]), notes


def _open_data(settings: Settings, file: ModelFile) -> Data:
    if settings.data.path is None:
        raise InputError(
            "there is no data to train and validate on",
            "give --data PATH, or [data] path in ltp.toml beside the model or in --config FILE; "
            "to see it work first: ltp-pipeline demo",
        )
    if len(file.inputs) != 1:
        names = ", ".join(repr(i.name) for i in file.inputs)
        raise InputError(f"the model has {len(file.inputs)} inputs ({names}) and the data give one", "use one input")
    return open_data(settings.data, file.inputs[0], settings.train.seed)


def _prepare(imported: ImportedModel, data: Data, settings: Settings, workspace: Workspace) -> Training:
    """Check that the model's output is what the labels speak of, before any training."""
    import_model.require_prunable(imported)
    training = Training(imported, data, settings.train, workspace, pick_device(settings.train.device))
    check_labels(data, training.classes())
    return training


def _warnings(original: Original, data: Data, workspace: Workspace) -> list[str]:
    """What a user should know before hours of training."""
    notes = list(data.notes)
    if original.accuracy.top1 < 2 / data.classes:
        notes.append(
            f"the original is right on only {original.accuracy.top1:.1%} of the {original.accuracy.split} split: "
            "check scale, mean, std and layout in [data]"
        )
    for note in notes:
        workspace.progress.say(f"Note: {note}")
    return notes[len(data.notes) :]


def _identity(file: ModelFile, data: Data, settings: Settings) -> dict[str, Any]:
    kept = {name: section for name, section in settings if name not in _FREE_SETTINGS}
    plain = {name: section.model_dump(mode="json", by_alias=True) for name, section in kept.items()}
    plain["data"].pop("path")
    return {"model": file.sha256, "data": data.fingerprint, "settings": plain}


def _is_finished(workspace: Workspace, settings: Settings) -> bool:
    asked = {"export": list(settings.export.formats), "baseline": settings.baseline.enabled}
    return workspace.done("report") == asked and workspace.path(REPORT_JSON).is_file()


@contextmanager
def _timed(workspace: Workspace, stage: str) -> Iterator[None]:
    begun = time.monotonic()
    try:
        yield
    finally:
        workspace.add_time(stage, time.monotonic() - begun)


def _first(count: int) -> Array:
    import numpy as np

    return np.arange(count)
