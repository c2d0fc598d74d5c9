"""Measure the files of a run: those of a network, and the original that they are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ltp_pipeline.data.dataset import Split
from ltp_pipeline.errors import ExportFailed
from ltp_pipeline.exporters.files.count import FileSparsity, count_file_sparsity
from ltp_pipeline.exporters.sparse_ops.library import sparse_ops_library
from ltp_pipeline.results.intervals import UNDEFINED
from ltp_pipeline.results.schema import (
    EpochCounts,
    FileLatencyResult,
    FileResult,
    NetworkResult,
    OriginalResult,
)
from ltp_pipeline.results.schema_parts import FILE_REASON_PREFIX, AccuracyResult
from ltp_pipeline.results.values import PairedCounts
from ltp_pipeline.stages.export import ExportedFile, ExportResult
from ltp_pipeline.stages.measure.session import (
    Session,
    SparseVsDenseSession,
    compare_latency,
    measure_latency,
)
from ltp_pipeline.system import tolerance
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.tasks.evaluator import Evaluator, count_pairs

if TYPE_CHECKING:
    from ltp_pipeline.data.dataset import Batch
    from ltp_pipeline.stages.import_model.network import Network
    from ltp_pipeline.stages.train.context import RunContext
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.protocol import Task

NO_CLASSES = "the data have no labels, or labels that are not one class per sample"
FEW_CLASSES = "there are five classes or fewer, or one for each position"
NOT_COUNTED = "the metric is not a fraction of samples that are correct or incorrect"
PARITY_SAMPLES = 64
PARITY_TOLERANCE = 1e-3  # relative, above a minimum (system/tolerance.py)
# Tolerances for files with rounded weights, and for half-precision models, which round at every
# node where torch does not: only a broken file differs by more. That a file holds the right weights
# is verified bit for bit at export, and how good it is shows in its accuracy.
ROUNDED_TOLERANCES = {"fp16": 2e-2, "int8": 0.5}


@dataclass(frozen=True)
class MeasuredNetwork:
    """A network through all its files, with what is not part of the report.

    Attributes:
        result: The network as it stands in the report, before derived numbers are computed.
        exact_scores: Score for each test sample of the file by which networks are compared.
        layer_nonzeros: Nonzeros of each layer in the file that has the most.
        notes: Notes of all files.
    """

    result: NetworkResult
    exact_scores: Array
    layer_nonzeros: Mapping[str, int]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeasuredPoint:
    """A network of the baseline, with the metric on the validation split, which selected it."""

    measured: MeasuredNetwork
    validation_accuracy: float


@dataclass(frozen=True)
class MeasuredBaseline:
    """The baseline: its point at the compression of LTP first, and further points of a curve.

    Attributes:
        points: The point at the compression of LTP, and further points.
        is_curve: Whether further points were requested.
        excludes_classifier: Whether the classifier was not pruned.
        in_blocks: Whether layers were pruned in blocks.
        unstructured: In addition to blocks, the same number of weights without blocks.
        gradual: The network that was pruned gradually; None if it was not measured.
    """

    points: tuple[MeasuredPoint, ...]
    is_curve: bool
    excludes_classifier: bool = False
    in_blocks: bool = False
    unstructured: MeasuredPoint | None = None
    gradual: MeasuredPoint | None = None


class MeasuredOriginal(NamedTuple):
    """The original in onnxruntime, with which files are compared.

    Attributes:
        result: The original as it stands in the report.
        validation_accuracy: Metric on the validation split.
        evaluator: Evaluates files by the task.
        scores: Score for each sample of the test split.
        session: Session with the threads of the run.
        single_threaded: Session with one thread; None if `session` has one.
    """

    result: OriginalResult
    validation_accuracy: float
    evaluator: Evaluator
    scores: Array
    session: Session
    single_threaded: Session | None = None

    def compare_latencies(self, session: Session, split: Split) -> tuple[FileLatencyResult, ...]:
        """Measure the latency of a file and of the original: on one thread, then on all."""
        results = []
        if self.single_threaded is not None:
            single_threaded = Session(
                session.path,
                positions=session.positions,
                is_single_threaded=True,
                library=session.library,
            )
            results += compare_latency(single_threaded, self.single_threaded, split)
        return (*results, *compare_latency(session, self.session, split))


class _MeasuredFile(NamedTuple):
    result: FileResult
    scores: Array
    counts: FileSparsity


def measure_original(context: RunContext) -> MeasuredOriginal:
    """Measure the original file of a run."""
    data = context.data
    file = context.network.file
    assert file.path is not None  # noqa: S101 - a run reads its model from a path
    positions = [output.position for output in context.task.outputs]
    session = Session(file.path, positions=positions)
    evaluator = Evaluator(context.task, session.compute_outputs)
    accuracy, scores = evaluator.evaluate_original(session.compute_outputs, data.test)
    validation = accuracy
    if data.val is not data.test:
        validation, _ = evaluator.evaluate_original(session.compute_outputs, data.val)
    single_threaded = None
    latency = []
    if session.threads > 1:
        single_threaded = Session(file.path, positions=positions, is_single_threaded=True)
        latency += measure_latency(single_threaded, data.test)
    latency += measure_latency(session, data.test)
    result = OriginalResult(
        accuracy=accuracy,
        reasons=explain_missing_accuracy(accuracy),
        path=str(file.path),
        bytes=file.num_bytes,
        load_ms=session.load_ms,
        latency=tuple(latency),
    )
    return MeasuredOriginal(result, validation.value, evaluator, scores, session, single_threaded)


def measure_network(
    exported: ExportResult,
    network: Network,
    state: StateDict,
    original: MeasuredOriginal,
    split: Split,
    epochs: Mapping[str, int],
) -> MeasuredNetwork:
    """Verify and measure the exported files of a network.

    Args:
        exported: The files.
        network: The network.
        state: Tensors of the network that the files were written from.
        original: The original.
        split: The test split.
        epochs: Epochs that the network was trained, by phase.

    Raises:
        ExportFailed: The outputs of a file differ from those of the network.
    """
    task = original.evaluator.task
    expected = _compute_torch_outputs(network, state, split.read_first(PARITY_SAMPLES), task)
    measured = [_measure_file(file, network, expected, original, split) for file in exported.files]
    least_accurate = task.metric.find_worst(measured, lambda file: file.result.value or 0.0)
    largest = max(measured, key=lambda file: file.counts.layers.nonzeros)
    exact = next((file for file in measured if file.result.is_exact), measured[0])
    interval = task.compute_drop_interval(original.scores, least_accurate.scores)
    reasons = dict(least_accurate.result.reasons)
    reasons.pop("paired_counts", None)
    if interval is None:
        reasons["drop_interval"] = UNDEFINED
    for name, reason in exported.skipped.items():
        reasons[FILE_REASON_PREFIX + name] = reason
    result = NetworkResult(
        drop_interval=interval,
        model_nonzeros=largest.counts.model.nonzeros,
        epochs=EpochCounts(**epochs),
        files=tuple(file.result for file in measured),
        reasons=reasons,
    )
    notes: list[str] = []
    for exported_file in exported.files:
        notes += exported_file.notes
    unique_notes = tuple(dict.fromkeys(notes))
    return MeasuredNetwork(result, exact.scores, largest.counts.nonzeros, unique_notes)


def explain_missing_accuracy(accuracy: AccuracyResult) -> dict[str, str]:
    """Return the reasons of the values of an accuracy that are null, by their keys."""
    if accuracy.top1 is None:
        return dict.fromkeys(("accuracy.top1", "accuracy.top5"), NO_CLASSES)
    if accuracy.top5 is None:
        return {"accuracy.top5": FEW_CLASSES}
    return {}


def explain_missing_counts(counts: PairedCounts | None) -> dict[str, str]:
    """Return the reason of missing counts of samples, by its key."""
    if counts is None:
        return {"paired_counts": NOT_COUNTED}
    return {}


def _measure_file(
    file: ExportedFile,
    network: Network,
    expected: Sequence[Array],
    original: MeasuredOriginal,
    split: Split,
) -> _MeasuredFile:
    """Verify and measure a file that holds a network whose outputs in torch are `expected`."""
    task = original.evaluator.task
    sparse_kernels = file.result.sparse_kernels
    library = None
    if sparse_kernels is not None:
        library = sparse_ops_library()
    positions = [output.position for output in task.outputs]
    session = Session(file.path, positions=positions, library=library)
    if sparse_kernels is None:
        accuracy, scores = original.evaluator(session.compute_outputs, split)
    else:
        sparse_session = SparseVsDenseSession(session)
        accuracy, scores = original.evaluator(sparse_session.compute_outputs, split)
        difference = sparse_session.check_differences()
        sparse_kernels = sparse_kernels.replace(largest_difference=difference)
    inputs = split.read_first(PARITY_SAMPLES).inputs
    parity = _check_parity(file.result, session, network, inputs, expected)
    paired_counts = count_pairs(task, original.scores, scores)
    counts = count_file_sparsity(file.path, [layer.name for layer in network.layer_weights])
    result = file.result.replace(
        nonzeros=counts.layers.nonzeros,
        accuracy=accuracy,
        reasons=explain_missing_accuracy(accuracy) | explain_missing_counts(paired_counts),
        paired_counts=paired_counts,
        parity_max_abs=parity,
        load_ms=session.load_ms,
        latency=original.compare_latencies(session, split),
        sparse_kernels=sparse_kernels,
    )
    return _MeasuredFile(result, scores, counts)


def _check_parity(
    file: FileResult,
    session: Session,
    network: Network,
    inputs: Mapping[str, Array],
    expected: Sequence[Array],
) -> float:
    """Return the largest difference between the outputs of a file and of its network in torch.

    Raises:
        ExportFailed: Outputs differ by more than rounding explains. Quantized files are not
            checked: quantization moves their outputs, and their accuracy shows by how much.
    """
    kind: str = file.weight_storage
    if network.forward.is_half:
        kind = "fp16"
    limit = ROUNDED_TOLERANCES.get(kind, PARITY_TOLERANCE)
    limit = max(limit, ROUNDED_TOLERANCES.get(file.weight_storage, 0.0))
    parity = 0.0
    outputs = session.compute_outputs(inputs)
    for number, expected_output in enumerate(expected):
        difference = tolerance.max_difference(outputs[number], expected_output)
        parity = max(parity, difference.difference)
        if file.quantization is not None:
            continue
        estimate_noise = partial(_estimate_noise, session, inputs, number)
        agreement = tolerance.check_tolerance(difference, limit, estimate_noise)
        if agreement is tolerance.Agreement.DIFFERENT:
            raise ExportFailed(
                f"{file.path} does not compute the outputs of the pruned network: they differ by "
                f"{difference.difference:.3g}",
                "report this as a bug",
            )
    return parity


def _estimate_noise(session: Session, inputs: Mapping[str, Array], position: int) -> float:
    """Return how far an output moves without optimization, or if inputs change by one rounding."""
    unoptimized = Session(
        session.path, positions=session.positions, is_optimized=False, library=session.library
    )
    smaller = {}
    for name, array in inputs.items():
        smaller[name] = array
        if array.dtype.kind == "f":
            smaller[name] = np.nextafter(array, array.dtype.type(0))
    expected = session.compute_outputs(inputs)[position]
    others = (unoptimized.compute_outputs(inputs), session.compute_outputs(smaller))
    return max(tolerance.max_difference(other[position], expected).difference for other in others)


def _compute_torch_outputs(
    network: Network, state: StateDict, batch: Batch, task: Task
) -> list[Array]:
    """Return the evaluated outputs of a network, computed without the layout of training."""
    import torch

    device = next(iter(state.values())).device
    inputs = {name: torch.from_numpy(array).to(device) for name, array in batch.inputs.items()}
    no_cudnn = torch.backends.cudnn.flags(enabled=False)  # cuDNN would round to TF32
    with torch.inference_mode(), no_cudnn:
        outputs = network.forward(inputs, state)
    return [outputs[output.position].float().cpu().numpy() for output in task.outputs]
