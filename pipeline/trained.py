"""A trained network in its run directory: its weights are kept, taken up again, exported and measured."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ltp_pipeline.config import ExportSettings
from ltp_pipeline.records import Measured, Pruned, Weights
from ltp_pipeline.stages import export, finetune_int8, quantize, validate
from ltp_pipeline.stages.import_model.parity_inputs import as_input
from ltp_pipeline.stages.import_model.tensors import array_to_torch
from ltp_pipeline.stages.lower import as_file_types, lift, lower
from ltp_pipeline.stages.prune import masks_of
from ltp_pipeline.stages.train import Job
from ltp_pipeline.workspace import Workspace

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.exporters.quantize.layers import Layer
    from ltp_pipeline.exporters.quantize.places import Trained, Training

PROOF_SAMPLES = 4  # on which exported files must give the bits of the dense one


def keep(job: Job, name: str, tuned: Pruned, more: Mapping[str, Any]) -> Weights:
    """Keep the final weights of a network, so that later commands need not train."""
    weights = lower(job.network, tuned.state)
    meta = {"epochs": dict(tuned.epochs), "nonzeros": tuned.nonzeros, **more}
    job.workspace.save_weights(name, {n: array_to_torch(array) for n, array in weights.items()}, meta)
    return weights


def recalled(job: Job, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> tuple[Pruned, Weights]:
    """A network whose final weights were kept."""
    weights = as_file_types(job.network, tensors)
    state = lift(job, weights)
    return Pruned(state, masks_of(job.network, state), meta["nonzeros"], meta["epochs"]), weights


def prove(
    job: Job,
    tuned: Pruned,
    weights: Weights,
    reference: validate.Reference | None,
    folder: str = "",
    settings: ExportSettings | None = None,
) -> Measured | None:
    """Export a network into a folder of the run directory and measure its files; the leader does."""
    if reference is None:
        return None
    file, shown = job.network.file, job.data.test.first(PROOF_SAMPLES).inputs
    feeds = {i.name: as_input(i, shown[i.name]) for i in file.inputs}
    kernels, asked = [k.name for k in job.network.kernels], settings or job.settings.export
    with timed(job.workspace, "export"):
        judged = quantize.calibration(file.inputs, job.data, reference.evaluator, asked, job.workspace.progress.say)
        if job.settings.train.quantize:
            judged = replace(judged, train=partial(_train, job, (folder or "pruned").replace("/", "-")))
        files = export.run(file, weights, kernels, asked, job.workspace, feeds, folder, judged)
    with timed(job.workspace, "validate"):
        return validate.run(files, job.network, tuned.state, reference, job.data.test, tuned.epochs)


def _train(job: Job, title: str, training: Training, layers: Sequence[Layer]) -> Trained:
    """Train in 8 bits in the midst of exporting, whose time it is not."""
    begun = time.monotonic()
    with timed(job.workspace, finetune_int8.NAME):
        trained = finetune_int8.run(job, title, training, layers)
    job.workspace.add_time("export", begun - time.monotonic())
    return trained


@contextmanager
def timed(workspace: Workspace, stage: str) -> Iterator[None]:
    """Note the time that a stage takes, also of one that is broken off."""
    begun = time.monotonic()
    try:
        yield
    finally:
        workspace.add_time(stage, time.monotonic() - begun)
