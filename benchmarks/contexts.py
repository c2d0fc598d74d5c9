"""Make contexts, train dense networks, learn thresholds and fine-tune, for other benchmarks."""

import tempfile
from pathlib import Path

from onnx import ModelProto

from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.graph.storage import read_model, write_model
from ltp_pipeline.results.schema_parts import LearnedEntry
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import finetune, prepare
from ltp_pipeline.stages.finetune import finetune_key
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.learn_thresholds import trail
from ltp_pipeline.stages.prepare import defaults
from ltp_pipeline.stages.prune import count_nonzeros, nonzero_masks
from ltp_pipeline.stages.train.context import PrunedNetwork, RunContext, pick_device
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.loop import train
from ltp_pipeline.stages.train.phase import PhaseFactory
from ltp_pipeline.stages.write_back import from_file_weights, list_file_tensors, to_file_weights
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.files import AnyPath
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.protocol import TaskOutput


def start_context(
    network: Network, data: DatasetSplits, settings: Settings, folder: Path
) -> RunContext:
    """Return a context in a scratch run directory.

    Args:
        network: A network whose first output has the class scores.
        data: The splits of the data.
        settings: The settings.
        folder: Folder for the run directory.
    """
    run_directory = RunDirectory(folder / "run")
    run_directory.begin_run({})
    task = ClassificationTask(
        TaskOutput(0, network.file.outputs[0].name, "scores"), num_classes=data.num_classes or 0
    )
    return RunContext(network, task, data, settings, run_directory, pick_device("cpu"))


def prepared(
    model: AnyPath | ModelProto, settings: Settings, folder: Path
) -> tuple[RunContext, StateDict]:
    """Return a context and the tensors of a network as `ltp-pipeline run` begins.

    Normalization layers are restored and the defaults resolved.

    Args:
        model: Path of a model, or a model in memory.
        settings: The settings.
        folder: Folder for the run directory.
    """
    run_directory = RunDirectory(folder / "run")
    file = read_model_file(model)
    context, state = prepare.prepare_run(file, settings, run_directory)
    run_directory.begin_run({})
    original = prepare.check_original(context, state)
    return defaults.resolve_defaults(context, state, original), state


def train_dense(
    network: Network, state: StateDict, data: DatasetSplits, settings: Settings, path: Path
) -> dict[str, float]:
    """Train a network for `train.epochs` without pruning, write it and return its accuracies.

    Args:
        network: The network.
        state: Its initial tensors.
        data: The splits of the data.
        settings: The settings of training.
        path: File for the trained model.
    """
    with tempfile.TemporaryDirectory() as scratch:
        context = start_context(network, data, settings, Path(scratch))
        state = finetune.run(context, PrunedNetwork(dict(state), {}, 0, {}), context.epochs).state
    write_model(network.file.model.with_weights(to_file_weights(network, state)), path)
    return final_numbers(context, state)


def learn_entry(context: RunContext, state: StateDict, begin: PhaseFactory) -> LearnedEntry:
    """Learn thresholds for `train.epochs` and return the last entry of the trail."""
    train(context, dict(state), begin, context.epochs, after=context.finetune_epochs)
    return trail.read_entries(context.run_directory)[-1]


def finetune_entry(context: RunContext, entry: LearnedEntry) -> StateDict:
    """Fine-tune an entry of the trail and return its tensors.

    The product refuses an entry that has lost a whole layer. Here it is a result of the method.
    """
    model = read_model(context.run_directory.trail_path(entry.entry))
    state = from_file_weights(context, read_tensors(model, list_file_tensors(context.network)))
    pruned = PrunedNetwork(state, nonzero_masks(context.network, state), 0, {})
    return finetune.run(
        context,
        pruned,
        context.finetune_epochs,
        key=finetune_key(entry.entry),
        before=context.epochs,
    ).state


def final_numbers(context: RunContext, state: StateDict) -> dict[str, float]:
    """Return accuracies on the test and validation splits, and the compression ratio."""
    nonzeros = sum(count_nonzeros(context.network, state).values())
    return {
        "test": evaluate_metric(context, state, context.data.test),
        "val": evaluate_metric(context, state, context.data.val),
        "reached": sum(layer.elements for layer in context.network.layer_weights) / nonzeros,
    }
