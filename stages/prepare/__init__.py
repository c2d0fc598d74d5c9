"""What is checked before anything is trained or written: that model, data and settings belong together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.data.open import would_read_folder
from ltp_pipeline.data.sequences import RaggedSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.graphs import int8
from ltp_pipeline.exporters.graphs.fast import explain_missing_library
from ltp_pipeline.graph.layer_weights import find_ancestors
from ltp_pipeline.graph.model_file import ModelFile
from ltp_pipeline.run_directory.run_directory import CUSTOM_TASK_HINT, RunDirectory
from ltp_pipeline.settings.checks import check_metric_limits
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import import_model, learn_thresholds
from ltp_pipeline.stages.import_model import restore_batch_norm
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.stages.import_model.validity import check_declared_types
from ltp_pipeline.stages.prepare import activation_memory, label_check
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.job import RunContext, pick_device, to_device
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.text import pluralize
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_data import CustomSplit, open_model_data
from ltp_pipeline.tasks.custom_task import CustomTaskAdapter
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.infer import infer_task
from ltp_pipeline.tasks.protocol import Task

PARITY_SAMPLES = 2  # on which torch is compared with onnxruntime
# What may change between two calls of the same run: nothing that was trained depends on it.
_FREE_SETTINGS = ("gates", "export", "baseline", "log")


def prepare(
    file: ModelFile, settings: Settings, workspace: RunDirectory, own: CustomTask | None = None
) -> tuple[RunContext, StateDict]:
    """Import the model, open the data, and check that they belong together, before anything is trained or written."""
    data = _open_data(settings, file, own)
    device = pick_device(settings.train.device)
    check_declared_types(file.model)
    network, state = import_model.run(
        file, settings.prune, data.test.read_first(PARITY_SAMPLES).inputs, settings.model
    )
    state = {name: tensor.to(device) for name, tensor in state.items()}
    import_model.check_prunable(network)
    _check_patterns(settings.prune.exclude, network)
    if settings.export.has_int8:
        if settings.train.quantization_aware and distributed.is_distributed():
            what = "train.quantization_aware works in one process only"
            raise InputError(what, "start without torchrun, or leave train.quantization_aware out")
        int8.check_quantizable(network.file.model, [k.name for k in network.layer_weights])
    if settings.export.has_fast and (missing := explain_missing_library()):
        workspace.progress.say(f"No fast file will be written: {missing}")
    task, data = _infer_task(network, state, data, settings, device, own)
    check_metric_limits(task.metric, settings.gates, settings.budget, settings.export)
    network = _exclude_unused_layers(network, task)
    learn_thresholds.make_pruning_method(network, state, settings)
    _check_memory(network, state, data, settings, device)
    if settings.model.restore_bn:
        network, state = restore_batch_norm.run(
            network, state, data.train, settings.train.batch_size, device
        )
    teacher = state if task.is_distilled or task.is_relative else None
    return RunContext(network, task, data, settings, workspace, device, teacher), state


def run_identity(file: ModelFile, data: DatasetSplits, settings: Settings) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    kept = {name: section for name, section in settings if name not in _FREE_SETTINGS}
    plain = {name: section.model_dump(mode="json", by_alias=True) for name, section in kept.items()}
    for free in (
        "path",
        "num_workers",
        "max_corrupt_images",
        "max_bytes",
    ):  # where samples lie and who decodes them is free
        plain["data"].pop(free)
    for free in (
        "skip_label_check",
        "threads",
        "quantization_aware",
    ):  # threads are kept by number: threads.py
        plain["train"].pop(free)
    known = {"model": file.sha256, "data": data.fingerprint, "settings": plain}
    return (
        {**known, "task": data.train.task.fingerprint}
        if isinstance(data.train, CustomSplit)
        else known
    )


def check_original(job: RunContext, state: StateDict) -> float:
    """Measure the original before training, the same on every process; an error where labels do not fit it."""
    found = evaluate_metric(job, state, job.data.val)
    guess = job.task.chance_level(job.data.val)
    if guess is not None:
        job.workspace.progress.say(label_check.describe_original(job, found, guess))
        label_check.check_labels(job, state, found, guess)
    return found


def check_paths_outside(out: Path, model: Path, settings: Settings) -> None:
    """A run may empty its directory; what it reads must not lie there, nor the directory among the samples."""
    data, inside = (
        settings.data.path,
        os.path.realpath(out),
    )  # which, unlike Path.resolve, takes links in a circle
    for path in (model, data):
        if path is not None and Path(os.path.realpath(path)).is_relative_to(inside):
            raise InputError(
                f"{path} lies in the run directory {out}", "move it, or give another --out"
            )
    if data is not None and would_read_folder(data, out):
        raise InputError(
            f"the run directory {out} would be taken for images of {data}", "give another --out"
        )


def check_same_task(workspace: RunDirectory, own: CustomTask | None, fresh: bool = False) -> None:
    """Refuse to go on without the task that a run was made with; it is never loaded because a manifest names it."""
    if fresh or not workspace.is_run:
        return
    if own is None:
        if workspace.has_custom_task:
            raise InputError(
                f"the run in {workspace.root} was made with a task of its own", CUSTOM_TASK_HINT
            )
        return
    if own.fingerprint is None:
        raise InputError(
            f"{own.origin} has no fingerprint, so nothing tells whether the run in {workspace.root} was made with it",
            "give it one, a text that changes when the task does; or start over: fresh=True",
        )
    if workspace.has_custom_task and own.fingerprint != workspace.task_fingerprint:
        raise InputError(
            f"the run in {workspace.root} was made with another task than {own.origin}",
            "give that one, unchanged; or start over: ltp-pipeline run --fresh",
        )


def _open_data(settings: Settings, file: ModelFile, own: CustomTask | None) -> DatasetSplits:
    if own is None and settings.data.path is None:
        raise InputError(
            "there is no data to train and validate on",
            "give --data PATH, or [data] path in ltp.toml beside the model or in --config FILE "
            "(`ltp-pipeline init` writes one); to see it work first: ltp-pipeline demo",
        )
    if not file.inputs:
        raise InputError("the model has no inputs", "give a model that takes samples")
    return open_model_data(file, settings.data, settings.train.seed, settings.task, own)


def _check_patterns(patterns: Sequence[str], network: Network) -> None:
    """Refuse a pattern that excludes nothing: what was to be spared would be pruned."""
    for pattern in patterns:
        if not any(fnmatchcase(k.name, pattern) for k in network.layer_weights):
            raise InputError(
                f"--exclude {pattern!r} matches no kernel",
                "`ltp-pipeline inspect` lists their names",
            )


def _infer_task(
    network: Network,
    state: StateDict,
    data: DatasetSplits,
    settings: Settings,
    device: torch.device,
    own: CustomTask | None,
) -> tuple[Task, DatasetSplits]:
    """Return the task, and the data with labels as the task reads them."""
    if len(data.train) < 2:
        raise InputError(
            "the training split has one sample", "give at least two; BatchNormalization needs them"
        )
    batch = data.train.read(np.arange(2))
    try:
        with torch.inference_mode():
            outputs = network.forward(to_device(batch.inputs, device), state)
    except NodeError as error:
        raise InputError(
            f"the model does not run on a batch of {len(batch)} samples: {error}",
            "export it with a dynamic batch size, and check the shape of the data",
        ) from None
    _check_longest_sequence(network, state, data, device)
    shapes = label_check.get_float_shapes(outputs)
    task, data = infer_task(
        data,
        network.file.model.graph,
        shapes,
        len(batch),
        settings.task,
        settings.train.distill_outputs_as,
    )
    if own is None:
        return task, data
    assert isinstance(task, DistillationTask)  # noqa: S101 - such data have no labels that we know
    mine = CustomTaskAdapter(own, task)
    with torch.inference_mode():
        mine.check_functions([outputs[o.position] for o in mine.outputs], batch)
    return mine, data


def _check_longest_sequence(
    network: Network, state: StateDict, data: DatasetSplits, device: torch.device
) -> None:
    """Refuse sequences that are too long for the model, such as for its table of positions."""
    for split in dict.fromkeys(data.splits):
        ragged = [s.samples for s in split.inputs.values() if isinstance(s.samples, RaggedSamples)]
        if not ragged:
            return
        lengths = np.max([samples.get_lengths(split.rows) for samples in ragged], axis=0)
        longest = int(lengths.argmax())
        try:
            with torch.inference_mode():
                network.forward(
                    to_device(split.read(np.array([longest] * 2)).inputs, device), state
                )
        except NodeError as error:
            raise InputError(
                f"the model does not run on sample {split.rows[longest]}, the longest of the {split.name} split with "
                f"{pluralize(lengths[longest], 'value')}: {error}",
                "cut sequences to the length that the model was made for",
            ) from None


def _check_memory(
    network: Network,
    state: StateDict,
    data: DatasetSplits,
    settings: Settings,
    device: torch.device,
) -> None:
    batch = data.train.read(np.arange(2))
    size = min(settings.train.batch_size, len(data.train)) // distributed.get_world_size()
    activation_memory.check_activation_memory(
        network, state, to_device(batch.inputs, device), len(batch), size
    )


def _exclude_unused_layers(network: Network, task: Task) -> Network:
    """Leave alone what no judged output depends on: nothing would tell what pruning does to it."""
    graph, judged = network.file.model.graph, {output.name for output in task.outputs}
    left_out = [o.name for o in graph.output if o.name not in judged]
    needed = find_ancestors(graph, judged)
    reason = "no judged output depends on it"
    kernels = tuple(
        k if k.name in needed or not k.is_prunable else replace(k, reason=reason)
        for k in network.layer_weights
    )
    if not left_out or kernels == network.layer_weights:
        return network
    note = f"output {', '.join(map(repr, left_out))} is not judged; kernels that only serve it are not pruned"
    network = replace(network, layer_weights=kernels, notes=(*network.notes, note))
    import_model.check_prunable(network)
    return network
