"""Quantise with data: samples to choose ranges by, and the validation split to judge by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.exporters.graphs import int8
from ltp_pipeline.exporters.int8.calibration import Calibration, Feeds, FileEvaluation
from ltp_pipeline.graph.layer_weights import find_layer_weights
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.results.tool_results import QuantizationResult
from ltp_pipeline.settings.checks import check_metric_limits
from ltp_pipeline.settings.file_names import INT8, ExportFormat
from ltp_pipeline.stages import export
from ltp_pipeline.stages.import_model.parity_inputs import to_input
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.measure.network import find_evaluator, validate_beside
from ltp_pipeline.stages.measure.session import Session
from ltp_pipeline.system.files import check_output_path
from ltp_pipeline.tasks.custom_data import open_model_data

if TYPE_CHECKING:
    from ltp_pipeline.data.dataset import DatasetSplits, Split
    from ltp_pipeline.graph.model_file import TensorInfo
    from ltp_pipeline.settings.schema import ExportSettings, Settings
    from ltp_pipeline.system.files import AnyPath
    from ltp_pipeline.tasks.custom import CustomTask
    from ltp_pipeline.tasks.evaluator import Evaluator

PROOF_SAMPLES = 4  # on which files must give the bits of the dense one
BATCH = 8  # samples at once, whose activations are all in memory
MOST_JUDGED = 2000  # samples of the validation split
SHOWN = 64  # of these, whose outputs are compared


def make_calibration(
    inputs: Sequence[TensorInfo],
    data: DatasetSplits,
    evaluator: Evaluator,
    settings: ExportSettings,
    say: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Samples of the training split, evenly taken, and a judge that measures files as the run measures them."""
    rows = None if len(data.val) <= MOST_JUDGED else _select_evenly(len(data.val), MOST_JUDGED)
    positions = [output.position for output in evaluator.task.outputs]

    def judge(path: Path) -> FileEvaluation:
        session = Session(path, positions=positions)
        value = evaluator(session.outputs, data.val, rows)[0].value
        return FileEvaluation(value, session.outputs(data.val.read_first(SHOWN).inputs))

    return Calibration(
        lambda count: _iter_batches(inputs, data.train, count),
        judge,
        evaluator.task.metric,
        settings,
        say,
    )


def quantize(
    model: AnyPath,
    out: AnyPath,
    settings: Settings,
    encoding: str = "packed",
    custom_task: CustomTask | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> QuantizationResult:
    """Write an int8 file of a float file of any origin, proven, and measure the two beside each other."""
    source, target = Path(model), Path(out)
    file = read_model_file(source)
    check_output_path(target, [source, *(source.parent / name for name in file.data_files)])
    walked, _ = flatten_model(
        file.model
    )  # functions would hide layers, as those of a fast file are
    kernels = [
        kernel.name
        for kernel in find_layer_weights(walked, settings.prune.include, settings.prune.exclude)
    ]
    int8.check_quantizable(walked, kernels)
    data = open_model_data(file, settings.data, settings.train.seed, settings.task, custom_task)
    session = Session(source, is_foreign=True)
    evaluator, data = find_evaluator(
        data,
        file.model.graph,
        session,
        session,
        settings.task,
        settings.train.distill_outputs_as,
        custom_task,
    )
    check_metric_limits(evaluator.task.metric, settings.gates, export=settings.export)
    shown = data.test.read_first(PROOF_SAMPLES).inputs
    feeds = {i.name: to_input(i, shown[i.name]) for i in file.inputs}
    judged = make_calibration(file.inputs, data, evaluator, settings.export, say)
    made = int8.build_graph(
        walked, {name: walked.get_array(name) for name in kernels}, kernels, feeds, judged
    )
    with export.move_when_done(target) as path:
        export.write_graph(made, kernels, ExportFormat(INT8, encoding), path, feeds, file.sha256)
        measured = replace(validate_beside(path, source, settings, custom_task), path=str(target))
    assert made.quantization is not None  # noqa: S101 - an int8 graph has one
    return QuantizationResult(measured, made.quantization, made.notes)


def _iter_batches(inputs: Sequence[TensorInfo], split: Split, count: int) -> Iterator[Feeds]:
    """So many samples, in batches that the model takes; of a fixed size, the last one is filled up."""
    rows = _select_evenly(len(split), min(count, len(split)))
    step = next(
        (i.shape[0] for i in inputs if i.shape and isinstance(i.shape[0], int) and i.shape[0] > 0),
        BATCH,
    )
    for start in range(0, len(rows), step):
        batch = split.read(rows[start : start + step]).inputs
        yield {i.name: to_input(i, batch[i.name]) for i in inputs}


def _select_evenly(size: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """So many row numbers, evenly over all."""
    return np.arange(count, dtype=np.int64) * size // count
