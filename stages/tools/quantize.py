"""Quantize a float file with data: training samples choose ranges, the validation split decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ltp_pipeline.data.dataset import DatasetSplits, Split
from ltp_pipeline.exporters.files.run_proof import Feeds
from ltp_pipeline.exporters.graphs import int8
from ltp_pipeline.exporters.graphs.graph import GraphContext
from ltp_pipeline.exporters.int8.search import Calibration, FileEvaluation
from ltp_pipeline.graph.layer_weights import find_layer_weights
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.results.schema_parts import QuantizationInfo
from ltp_pipeline.settings.checks import check_metric_limits
from ltp_pipeline.settings.file_names import INT8, ExportFormat
from ltp_pipeline.settings.schema import ExportSettings, Settings
from ltp_pipeline.stages import export
from ltp_pipeline.stages.import_model.parity_inputs import to_input
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.measure.any_file import (
    ValidationResult,
    make_evaluator,
    validate_against,
)
from ltp_pipeline.stages.measure.session import Session
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.files import AnyPath, check_output_path
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_data import open_model_data
from ltp_pipeline.tasks.evaluator import Evaluator

BATCH_SIZE = 8  # small, because all activations of a batch are in memory
MAX_EVALUATED = 2000  # samples of the validation split that a variant is evaluated on
NUM_COMPARED = 64  # of these, samples whose outputs are compared


@dataclass(frozen=True)
class QuantizationResult:
    """An int8 file, measured beside the one it was made of, and how it was made."""

    measurement: ValidationResult
    quantization: QuantizationInfo
    notes: tuple[str, ...]


def make_calibration(
    inputs: Sequence[TensorInfo],
    data: DatasetSplits,
    evaluator: Evaluator,
    settings: ExportSettings,
    say: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Return the samples and the evaluation that quantization needs.

    Args:
        inputs: Inputs of the model.
        data: Samples come from the training split and the evaluation uses the validation split.
        evaluator: Evaluates files as the run does.
        settings: Options of quantization.
        say: Shows a line of progress.
    """
    rows = None
    if len(data.val) > MAX_EVALUATED:
        rows = _select_evenly(len(data.val), MAX_EVALUATED)
    positions = [output.position for output in evaluator.task.outputs]

    def evaluate(path: Path) -> FileEvaluation:
        session = Session(path, positions=positions)
        result, _ = evaluator(session.compute_outputs, data.val, rows)
        outputs = session.compute_outputs(data.val.read_first(NUM_COMPARED).inputs)
        return FileEvaluation(result.value, outputs)

    def read_samples(count: int) -> Iterator[Feeds]:
        return _iter_batches(inputs, data.train, count)

    return Calibration(read_samples, evaluate, evaluator.task.metric, settings, say)


def quantize(
    model: AnyPath,
    out: AnyPath,
    settings: Settings,
    encoding: str = "packed",
    custom_task: CustomTask | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> QuantizationResult:
    """Write an int8 file of any float file, verify it, and measure both.

    Args:
        model: The float file.
        out: The int8 file to write.
        settings: Data, task and options of quantization.
        encoding: Encoding of the int8 file.
        custom_task: A task of the user; None for a built-in one.
        say: Shows a line of progress.

    Raises:
        UnsupportedModel: If no layer can be quantized.
        ExportFailed: If the file cannot be verified.
    """
    source = Path(model)
    target = Path(out)
    file = read_model_file(source)
    check_output_path(target, [source, *(source.parent / name for name in file.data_files)])
    flat, _ = flatten_model(file.model)  # layers in functions, as in fast files, are not found
    layers = find_layer_weights(flat, settings.prune.include, settings.prune.exclude)
    weight_names = [layer.name for layer in layers]
    int8.check_quantizable(flat, weight_names)
    data = open_model_data(file, settings.data, settings.train.seed, settings.task, custom_task)
    session = Session(source, is_foreign=True)
    evaluator, data = make_evaluator(
        data,
        file.model.graph,
        session,
        session,
        settings.task,
        settings.train.distill_outputs_as,
        custom_task,
    )
    check_metric_limits(evaluator.task.metric, settings.gates, export=settings.export)
    context = GraphContext(
        flat,
        flat.get_arrays(weight_names),
        weight_names,
        export.select_feeds(file.inputs, data),
        make_calibration(file.inputs, data, evaluator, settings.export, say),
    )
    graph = int8.build_graph(context)
    assert graph.quantization is not None  # noqa: S101 - an int8 graph has one
    with export.move_when_done(target) as path:
        export.write_graph(graph, context, ExportFormat(INT8, encoding), path, file.sha256)
        measurement = validate_against(path, source, settings, custom_task)
    measurement = replace(measurement, path=str(target))
    return QuantizationResult(measurement, graph.quantization, graph.notes)


def _iter_batches(inputs: Sequence[TensorInfo], split: Split, count: int) -> Iterator[Feeds]:
    """Yield samples, evenly selected, in batches that the model takes.

    If the batch size of the model is fixed, the last batch is filled up.
    """
    rows = _select_evenly(len(split), min(count, len(split)))
    batch_size = BATCH_SIZE
    for info in inputs:
        if info.shape and isinstance(info.shape[0], int) and info.shape[0] > 0:
            batch_size = info.shape[0]
            break
    for start in range(0, len(rows), batch_size):
        batch = split.read(rows[start : start + batch_size]).inputs
        yield {info.name: to_input(info, batch[info.name]) for info in inputs}


def _select_evenly(size: int, count: int) -> Array:
    """Return `count` row numbers, evenly spread over a split with `size` rows."""
    return np.arange(count, dtype=np.int64) * size // count
