"""What benchmarks share: contexts, the dense networks to start from, learning, and the final numbers."""

import tempfile
from pathlib import Path

from onnx import ModelProto

from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.graph.storage import read_model, write_model
from ltp_pipeline.results.schema_parts import LearnedEntry
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import finetune, import_model, prepare
from ltp_pipeline.stages.finetune import finetune_key
from ltp_pipeline.stages.import_model.network import Network
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


def start(network: Network, data: DatasetSplits, settings: Settings, folder: Path) -> RunContext:
    """A context in a scratch run directory; the network's first output scores the classes."""
    run_directory = RunDirectory(folder / "run")
    run_directory.begin_run({})
    task = ClassificationTask(
        TaskOutput(0, network.file.outputs[0].name, "scores"), num_classes=data.num_classes or 0
    )
    return RunContext(network, task, data, settings, run_directory, pick_device("cpu"))


def prepared(
    model: AnyPath | ModelProto, settings: Settings, folder: Path
) -> tuple[RunContext, StateDict]:
    """A context as `ltp-pipeline run` begins it: norms restored, and the strength that the target has by (R5)."""
    run_directory = RunDirectory(folder / "run")
    context, state = prepare.prepare_run(
        import_model.read_model_file(model), settings, run_directory
    )
    run_directory.begin_run({})
    return defaults.resolve_defaults(context, state, prepare.check_original(context, state)), state


def train_dense(
    network: Network, state: StateDict, data: DatasetSplits, settings: Settings, path: Path
) -> dict[str, float]:
    """Train a network for `train.epochs` without pruning and write it; what it is worth."""
    with tempfile.TemporaryDirectory() as scratch:
        context = start(network, data, settings, Path(scratch))
        state = finetune.run(context, PrunedNetwork(dict(state), {}, 0, {}), context.epochs).state
    write_model(network.file.model.with_weights(to_file_weights(network, state)), path)
    return final_numbers(context, state)


def learn(context: RunContext, state: StateDict, begin: PhaseFactory) -> LearnedEntry:
    """Learn for `train.epochs`; the last network of the trail."""
    train(context, dict(state), begin, context.epochs, after=context.finetune_epochs)
    return trail.read_entries(context.run_directory)[-1]


def finish(context: RunContext, entry: LearnedEntry) -> StateDict:
    """Prune to a network of the trail and fine-tune it, even where a method without floors has lost a whole layer.

    A product must not ship that, so `prune` refuses it; here it counts as the method's result.
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
    """Accuracies and compression."""
    nonzeros = sum(count_nonzeros(context.network, state).values())
    return {
        "test": evaluate_metric(context, state, context.data.test),
        "val": evaluate_metric(context, state, context.data.val),
        "reached": sum(k.elements for k in context.network.layer_weights) / nonzeros,
    }
