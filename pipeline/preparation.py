"""What is checked before anything is trained or written: that model, data and settings belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from ltp_pipeline import ranks
from ltp_pipeline.config import Settings
from ltp_pipeline.data import Data, open_data, takes_in
from ltp_pipeline.data.samples import Array
from ltp_pipeline.errors import InputError
from ltp_pipeline.records import ImportedModel, ModelFile, TensorInfo
from ltp_pipeline.report_schema import Report
from ltp_pipeline.stages import baseline, fit, import_model, learn_thresholds
from ltp_pipeline.stages.import_model import restore_bn
from ltp_pipeline.stages.import_model.kernels import behind
from ltp_pipeline.stages.metric import Metric
from ltp_pipeline.stages.schedule import FEWEST_EPOCHS, FEWEST_STEPS, strength
from ltp_pipeline.stages.training import Training, pick_device
from ltp_pipeline.words import counted
from ltp_pipeline.workspace import Workspace

FEW_STEPS = 100
PARITY_SAMPLES = 2  # on which the module is compared with onnxruntime
# What may change between two calls of the same run: nothing that was trained depends on it.
_FREE_SETTINGS = ("gates", "export", "baseline", "log")


def prepare(file: ModelFile, settings: Settings, workspace: Workspace) -> Training:
    """Import the model, open the data, and check that they belong together, before anything is trained or written."""
    data = _open_data(settings, file)
    samples = data.test.read(np.arange(min(PARITY_SAMPLES, len(data.test))))
    imported = import_model.run(file, settings.kernels, samples, settings.model)
    import_model.require_prunable(imported)
    _require_matches(settings.kernels.exclude, imported)
    training = Training(imported, data, settings.train, workspace, pick_device(settings.train.device))
    imported = _judged_only(imported, training.metric)
    training = replace(training, imported=imported)
    learn_thresholds.make_method(imported, settings)
    if settings.model.restore_bn:
        imported = restore_bn.run(imported, data.train, settings.train.batch_size, training.device)
        training = replace(training, imported=imported)
    if training.objective.taught:
        teacher = {n: t.detach().clone() for n, t in imported.module.to(training.device).tensors().items()}
        training = replace(training, teacher=teacher)
    return training


def _require_matches(patterns: Sequence[str], imported: ImportedModel) -> None:
    """Refuse a pattern that excludes nothing: what was to be spared would be pruned."""
    for pattern in patterns:
        if not any(fnmatchcase(k.name, pattern) for k in imported.kernels):
            raise InputError(f"--exclude {pattern!r} matches no kernel", "`ltp-pipeline inspect` lists their names")


def _open_data(settings: Settings, file: ModelFile) -> Data:
    if settings.data.path is None:
        raise InputError(
            "there is no data to train and validate on",
            "give --data PATH, or [data] path in ltp.toml beside the model or in --config FILE; "
            "to see it work first: ltp-pipeline demo",
        )
    if len(file.inputs) != 1:
        names = ", ".join(repr(i.name) for i in file.inputs)
        raise InputError(
            f"the model has {len(file.inputs)} inputs ({names}) and the data give one",
            "give a model with one input: make the others initializers, or compute them in the graph",
        )
    return open_data(settings.data, file.inputs[0], settings.train.seed)


def _judged_only(imported: ImportedModel, metric: Metric) -> ImportedModel:
    """Leave alone what no judged output depends on: nothing would tell what pruning does to it."""
    graph = imported.proto.graph
    left_out = [o.name for i, o in enumerate(graph.output) if i not in metric.positions]
    needed = behind(graph, [output.name for output in metric.outputs])
    reason = "no judged output depends on it"
    kernels = tuple(k if k.name in needed or not k.prunable else replace(k, reason=reason) for k in imported.kernels)
    if not left_out or kernels == imported.kernels:
        return imported
    note = f"output {', '.join(map(repr, left_out))} is not judged; kernels that only serve it are not pruned"
    imported = replace(imported, kernels=kernels, notes=(*imported.notes, note))
    import_model.require_prunable(imported)
    return imported


def warn(training: Training, accuracy: float, settings: Settings) -> None:
    """Say what a user should know before hours of training."""
    about = (*about_metric(training), *about_epochs(training), *doubts(training, accuracy))
    hints = fit.hints(training, accuracy, settings.data)
    for note in (*training.imported.notes, *training.data.notes, *about, *hints):
        training.workspace.progress.say(f"Note: {note}")


def original_accuracy(training: Training, settings: Settings) -> float:
    """Measure the original before training, the same on every rank; an error where labels do not fit it."""
    accuracy = training.accuracy(training.data.val)
    labels = training.data.val.labels
    if labels is not None:
        said = f"The original is right on {accuracy:.2%} of the {len(labels)} validation samples"
        training.workspace.progress.say(f"{said}; naming the most frequent class, on {fit.guessing(labels):.2%}")
        fit.require(training, accuracy, settings.data)
    return accuracy


def with_strength(training: Training, settings: Settings, accuracy: float) -> Training:
    """Measure how much the target asks of the network: how far it still works when it is simply cut to size. (R5).

    `accuracy` is the original's on the validation split. All ranks measure together, once: a run that goes on, goes on
    with what was measured when it began.
    """
    wanted, workspace = settings.budget.wanted_compression, training.workspace
    if wanted is None:
        return training
    known = ranks.from_leader(-1.0 if workspace.strength is None else workspace.strength, training.device)
    if known >= 0:
        return replace(training, strength=known)
    elements = sum(k.elements for k in training.imported.kernels)
    labels = training.data.val.labels
    guess = 0.0 if labels is None else fit.guessing(labels)
    cut = baseline.accuracy_when_cut(int(elements / wanted), training)
    better = accuracy > guess and (labels is None or fit.beats(accuracy, len(labels), guess))
    found = strength((cut - guess) / (accuracy - guess) if better else 0.0)
    if ranks.leads():
        workspace.keep_strength(found)
    return replace(training, strength=found)


def doubts(training: Training, accuracy: float) -> list[str]:
    """What speaks against the outcome: an original that hardly beats naming the commonest class, or few steps."""
    notes = []
    labels = training.data.val.labels
    chance = 1.0 if labels is None else fit.guessing(labels)
    if labels is not None and accuracy < chance + 0.1 * (1 - chance):
        said = f"the original is right on only {accuracy:.1%} of the validation split"
        notes.append(f"{said}: check scale, mean, std and layout in [data]")
    steps = training.epochs * training.steps_per_epoch
    if steps < FEW_STEPS:
        said = f"thresholds are learned in only {counted(steps, 'step')}"
        notes.append(f"{said}: more epochs or smaller batches would lose less")
    return notes


def about_epochs(training: Training) -> list[str]:
    """How long training takes, where nothing was said of it."""
    if training.settings.epochs is not None:
        return []
    epochs, steps = (training.epochs, training.finetune_epochs), counted(training.steps_per_epoch, "step")
    more = FEWEST_EPOCHS * training.steps_per_epoch < FEWEST_STEPS
    few = f", because {len(training.data.train):,} samples make few steps" if more else ""
    return [
        f"thresholds are learned for {epochs[0]} and the result is fine-tuned for {epochs[1]} epochs of {steps}"
        f"{few}; --epochs and --finetune-epochs set other numbers"
    ]


def about_metric(training: Training) -> list[str]:
    """What is judged, and in which unit a budget is, where it is not the share of right answers."""
    metric = training.metric
    if metric.name == "top-1":
        return []
    read = ", ".join(f"{output.name!r} as {output.kind}" for output in metric.outputs)
    learned = f"without labels the original is learned from, {read}"
    if metric.name == "agreement":
        return [
            f"{learned}; the metric is agreement, the share of samples with the original's class: a budget of 0.01 is "
            "1 % of the samples, not a point of accuracy"
        ]
    notes = [
        f"{learned}; the metric is explained, the share of the variance of the original's outputs that is met: a "
        "budget of 0.01 is 1 % of that variance, not a point of accuracy"
    ]
    maybe = [output.name for output in metric.outputs if output.maybe_scores and output.kind == "values"]
    if maybe and training.settings.imitate == "auto":
        names = ", ".join(map(repr, maybe))
        notes.append(
            f"{names} may be values or class scores, which the shape does not tell; if class scores, write "
            'train.imitate = "scores" (--set train.imitate=scores): then the largest score is what counts'
        )
    return notes


def refuse_inputs_inside(out: Path, model: Path, settings: Settings) -> None:
    """A run may empty its directory; what it reads must not lie there, nor the directory among the samples."""
    data = settings.data.path
    for path in (model, data):
        if path is not None and path.resolve().is_relative_to(out.resolve()):
            raise InputError(f"{path} lies in the run directory {out}", "move it, or give another --out")
    if data is not None and takes_in(data, out):
        raise InputError(f"the run directory {out} would be taken for images of {data}", "give another --out")


def stored_samples(folder: Path, report: Report, count: int) -> Array:
    """The first samples of a run's test split, as they are stored; its data must still be those of the run."""
    workspace = Workspace(folder)
    _, settings = workspace.inputs()
    if not report.model.inputs:
        raise InputError(f"the report in {folder} does not say what the model takes", "start the run again")
    wanted = report.model.inputs[0]
    model_input = TensorInfo(wanted.name, wanted.type, None if wanted.shape is None else tuple(wanted.shape))
    data = open_data(settings.data, model_input, settings.train.seed)
    if data.fingerprint != workspace.data_fingerprint:
        raise InputError(
            f"the data at {settings.data.path} are no longer those of the run in {folder}",
            "bring them back, or leave --example-samples out",
        )
    test = data.test
    return test.samples.take(test.rows[:count])


def identity(file: ModelFile, data: Data, settings: Settings) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    kept = {name: section for name, section in settings if name not in _FREE_SETTINGS}
    plain = {name: section.model_dump(mode="json", by_alias=True) for name, section in kept.items()}
    for free in ("path", "workers", "max_broken"):  # where samples lie and who decodes them changes nothing
        plain["data"].pop(free)
    for free in ("trust_labels", "threads"):  # threads are kept by number: threads.py
        plain["train"].pop(free)
    return {"model": file.sha256, "data": data.fingerprint, "settings": plain}
