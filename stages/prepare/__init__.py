"""Check that model, data and settings fit together, before anything is trained or written."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ltp_pipeline.data.dataset import Batch, DatasetSplits
from ltp_pipeline.data.open import would_read_folder
from ltp_pipeline.data.sequences import RaggedSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.graphs import int8
from ltp_pipeline.exporters.graphs.fast import explain_missing_library
from ltp_pipeline.graph.model_file import ModelFile
from ltp_pipeline.graph.view import find_ancestors
from ltp_pipeline.run_directory.run_directory import CUSTOM_TASK_HINT, RunDirectory
from ltp_pipeline.settings.checks import check_metric_limits
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import import_model, learn_thresholds, weight_units
from ltp_pipeline.stages.import_model import restore_batch_norm
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.stages.import_model.validity import check_declared_types
from ltp_pipeline.stages.multiply_adds import count_uses
from ltp_pipeline.stages.prepare import label_check, latency_costs
from ltp_pipeline.stages.prepare.activation_memory import check_activation_memory
from ltp_pipeline.stages.prepare.byte_costs import count_byte_costs
from ltp_pipeline.stages.train.context import RunContext, pick_device, to_device
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.weight_costs import count_multiply_add_costs
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.text import pluralize
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_data import CustomSplit, open_model_data
from ltp_pipeline.tasks.custom_task import CustomTaskAdapter
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.infer import infer_task
from ltp_pipeline.tasks.protocol import Task

PARITY_SAMPLES = 2  # samples on which torch is compared with onnxruntime
CHECKED_SAMPLES = 2  # samples in the batch on which the network is tried
# Settings that may change when a run is resumed, because nothing that was trained depends on them.
FREE_SETTINGS: dict[str, Any] = {
    "gates": True,
    "export": True,
    "baseline": True,
    "log": True,
    "data": {"path", "num_workers", "max_corrupt_images", "max_bytes"},
    # The run directory keeps the number of threads itself.
    "train": {"skip_label_check", "threads", "quantization_aware"},
}

# Returns the outputs of the original for a batch.
RunBatch = Callable[[Batch], Sequence[Any]]


def prepare_run(
    file: ModelFile,
    settings: Settings,
    run_directory: RunDirectory,
    custom_task: CustomTask | None = None,
) -> tuple[RunContext, StateDict]:
    """Import the model, open the data, and check that they fit together.

    Args:
        file: The model.
        settings: Settings of the user.
        run_directory: The run directory; nothing is written into it.
        custom_task: The user's own task, which brings data, loss and metric.

    Returns:
        What the stages of the run share, and the weights of the original.

    Raises:
        InputError: Data, settings and model do not fit together.
        UnsupportedModel: The model cannot be trained.
    """
    latency_costs.check_sparse_operators(settings)
    data = _open_data(settings, file, custom_task)
    device = pick_device(settings.train.device)
    check_declared_types(file.model)
    samples = data.test.read_first(PARITY_SAMPLES).inputs
    network, state = import_model.run(file, settings.prune, samples, settings.model)
    state = {name: tensor.to(device) for name, tensor in state.items()}
    import_model.check_prunable(network)
    _check_excluded(settings.prune.exclude, network)
    _check_export(settings, network, run_directory)

    def run_batch(batch: Batch) -> Sequence[Any]:
        with torch.inference_mode():
            return network.forward(to_device(batch.inputs, device), state)

    batch, outputs = _run_first_samples(run_batch, data)
    _check_longest_sequence(run_batch, data)
    task: Task
    task, data = infer_task(
        data,
        network.file.model.graph,
        label_check.get_float_shapes(outputs),
        len(batch),
        settings.task,
        settings.train.distill_outputs_as,
    )
    if custom_task is not None:
        assert isinstance(task, DistillationTask)  # noqa: S101 - custom data have no labels
        task = CustomTaskAdapter(custom_task, task)
        with torch.inference_mode():
            task.check_functions([outputs[output.position] for output in task.outputs], batch)
    check_metric_limits(task.metric, settings.gates, settings.budget, settings.export)
    network = _exclude_unused_layers(network, task)
    inputs = to_device(batch.inputs, device)
    uses = count_uses(network, state, inputs)
    weight_costs = None
    if settings.budget.target_macs is not None:
        weight_costs = count_multiply_add_costs(
            network.layer_weights, uses, settings.budget.target_macs
        )
    if settings.budget.target_bytes is None and settings.budget.target_latency is None:
        learn_thresholds.make_pruning_method(network, state, settings, weight_costs=weight_costs)
    batch_size = min(settings.train.batch_size, len(data.train)) // distributed.get_world_size()
    check_activation_memory(network, state, inputs, CHECKED_SAMPLES, batch_size)
    if settings.model.restore_bn:
        network, state = restore_batch_norm.run(
            network, state, data.train, settings.train.batch_size, device
        )
    if settings.method.lambda_ is None:  # the paper trains the weights as they are
        network, state = weight_units.run(network, state)
    teacher = state if task.is_distilled or task.is_relative else None
    if settings.budget.target_bytes is not None:
        weight_costs = count_byte_costs(network, state, settings)
    context = RunContext(
        network,
        task,
        data,
        settings,
        run_directory,
        device,
        teacher,
        uses=uses,
        weight_costs=weight_costs,
    )
    return context, state


def check_original(context: RunContext, state: StateDict) -> float:
    """Return the original's metric on the validation split, which all ranks measure together.

    Raises:
        InputError: The original is not better than a constant prediction.
    """
    value = evaluate_metric(context, state, context.data.val)
    chance = context.task.chance_level(context.data.val)
    if chance is not None:
        context.run_directory.progress.say(label_check.describe_original(context, value, chance))
        label_check.check_labels(context, state, value, chance)
    return value


def get_run_identity(file: ModelFile, data: DatasetSplits, settings: Settings) -> dict[str, Any]:
    """Return what must be equal for a run to be resumed: model, data, settings and custom task."""
    identity: dict[str, Any] = {
        "model": file.sha256,
        "data": data.fingerprint,
        "settings": settings.model_dump(mode="json", by_alias=True, exclude=FREE_SETTINGS),
    }
    if isinstance(data.train, CustomSplit):
        identity["task"] = data.train.source.task_fingerprint
    return identity


def check_paths_outside(out: Path, model: Path, settings: Settings) -> None:
    """Raise InputError if a run directory, which a run may empty, contains inputs of the run.

    It must not lie among the images of the data either.
    """
    data = settings.data.path
    folder = os.path.realpath(out)  # unlike Path.resolve, it accepts links in a circle
    for path in (model, data):
        if path is not None and Path(os.path.realpath(path)).is_relative_to(folder):
            raise InputError(
                f"{path} lies in the run directory {out}",
                "move the file, or pass another directory: --out DIR",
            )
    if data is not None and would_read_folder(data, out):
        raise InputError(
            f"the run directory {out} would be read as images of {data}",
            "pass another directory: --out DIR",
        )


def check_same_task(
    run_directory: RunDirectory, custom_task: CustomTask | None, fresh: bool = False
) -> None:
    """Raise InputError if a run is resumed with another custom task than it began with.

    A custom task is code. It is never loaded because a manifest names it.

    Args:
        run_directory: The run directory.
        custom_task: The user's own task.
        fresh: True if the run starts over.
    """
    if fresh or not run_directory.is_run:
        return
    if custom_task is None:
        if run_directory.has_custom_task:
            raise InputError(f"the run in {run_directory.root} has a custom task", CUSTOM_TASK_HINT)
        return
    if custom_task.fingerprint is None:
        raise InputError(
            f"{custom_task.origin} has no fingerprint, so it may differ from the task of the run "
            f"in {run_directory.root}",
            "add a fingerprint, a text that changes when the task does; or start over: fresh=True",
        )
    if run_directory.has_custom_task and custom_task.fingerprint != run_directory.task_fingerprint:
        raise InputError(
            f"the run in {run_directory.root} has another task than {custom_task.origin}",
            "pass the unchanged task of the run; or start over: ltp-pipeline run --fresh",
        )


def _open_data(
    settings: Settings, file: ModelFile, custom_task: CustomTask | None
) -> DatasetSplits:
    """Return the data; raise InputError if there are none."""
    if custom_task is None and settings.data.path is None:
        raise InputError(
            "there are no data to train and validate with",
            "pass --data PATH, or set path in [data] of an ltp.toml next to the model or of "
            "--config FILE (`ltp-pipeline init` writes one); for an example, run ltp-pipeline demo",
        )
    if not file.inputs:
        raise InputError("the model has no inputs", "pass a model whose inputs are samples")
    return open_model_data(file, settings.data, settings.train.seed, settings.task, custom_task)


def _check_excluded(patterns: Sequence[str], network: Network) -> None:
    """Raise InputError for a pattern without a match: its layers would be pruned after all."""
    for pattern in patterns:
        if not any(fnmatchcase(layer.name, pattern) for layer in network.layer_weights):
            raise InputError(
                f"prune.exclude {pattern!r} matches no layer weight",
                "correct --exclude; `ltp-pipeline inspect` lists the names",
            )


def _check_export(settings: Settings, network: Network, run_directory: RunDirectory) -> None:
    """Raise InputError if int8 files cannot be made; print a note if fast files cannot."""
    if settings.export.has_int8:
        if settings.train.quantization_aware and distributed.is_distributed():
            raise InputError(
                "train.quantization_aware works in one process only",
                "start without torchrun, or remove train.quantization_aware",
            )
        names = [layer.name for layer in network.layer_weights]
        int8.check_quantizable(network.file.model, names)
    missing = explain_missing_library() if settings.export.has_fast else None
    if missing:
        run_directory.progress.say(f"No fast file will be written: {missing}")


def _run_first_samples(run_batch: RunBatch, data: DatasetSplits) -> tuple[Batch, Sequence[Any]]:
    """Return the first samples with their outputs; raise InputError if the model does not run."""
    if len(data.train) < CHECKED_SAMPLES:
        raise InputError(
            "the training split has one sample",
            "pass at least two; BatchNormalization needs them",
        )
    batch = data.train.read_first(CHECKED_SAMPLES)
    try:
        return batch, run_batch(batch)
    except NodeError as error:
        raise InputError(
            f"the model does not run on a batch of {len(batch)} samples: {error}",
            "export it with a dynamic batch size, and check the shape of the data",
        ) from None


def _check_longest_sequence(run_batch: RunBatch, data: DatasetSplits) -> None:
    """Raise InputError for sequences that are too long, such as for a table of positions."""
    for split in dict.fromkeys(data.splits):
        columns = [source.samples for source in split.inputs.values()]
        ragged = [samples for samples in columns if isinstance(samples, RaggedSamples)]
        if not ragged:
            return
        lengths = np.max([samples.get_lengths(split.rows) for samples in ragged], axis=0)
        longest = int(lengths.argmax())
        try:
            run_batch(split.read(np.array([longest] * CHECKED_SAMPLES)))
        except NodeError as error:
            raise InputError(
                f"the model does not run on sample {split.rows[longest]}, the longest of the "
                f"{split.name} split with {pluralize(lengths[longest], 'value')}: {error}",
                "cut sequences to the length that the model was made for",
            ) from None


def _exclude_unused_layers(network: Network, task: Task) -> Network:
    """Return the network without pruning of layers that no evaluated output depends on.

    Nothing would show what pruning does to them.
    """
    graph = network.file.model.graph
    evaluated = {output.name for output in task.outputs}
    others = [output.name for output in graph.output if output.name not in evaluated]
    needed = find_ancestors(graph, evaluated)
    layers = list(network.layer_weights)
    for i, layer in enumerate(layers):
        if layer.is_prunable and layer.name not in needed:
            layers[i] = replace(layer, reason="no evaluated output depends on it")
    if not others or tuple(layers) == network.layer_weights:
        return network
    note = (
        f"the output {', '.join(map(repr, others))} is not evaluated; layers that only it depends "
        "on are not pruned"
    )
    network = replace(network, layer_weights=tuple(layers)).with_note(note)
    import_model.check_prunable(network)
    return network
