"""Measure any ONNX file without its run, alone or against another file."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.data.open import INFERRED_TASK
from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.files.count import count_sparsity
from ltp_pipeline.exporters.files.run_proof import PROVIDER
from ltp_pipeline.exporters.graphs import fast
from ltp_pipeline.graph.layer_weights import find_layer_weights
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema_parts import AccuracyResult
from ltp_pipeline.settings.schema import DataSettings, DistillOutputs, Settings, TaskSettings
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.measure.session import (
    LATENCY_BATCHES,
    PROBE_SAMPLES,
    Session,
    SparseVsDenseSession,
    find_library,
    time_batch,
)
from ltp_pipeline.system.files import AnyPath
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_data import open_model_data
from ltp_pipeline.tasks.custom_task import CustomTaskAdapter
from ltp_pipeline.tasks.distillation import R2_VS_ORIGINAL, DistillationTask
from ltp_pipeline.tasks.evaluator import Evaluator
from ltp_pipeline.tasks.infer import infer_task

if TYPE_CHECKING:
    from onnx import GraphProto


@dataclass(frozen=True)
class ReferenceResult:
    """The other file of a validation, and how the two differ on the same samples."""

    path: str
    accuracy: AccuracyResult
    drop: float  # from the other file to the validated one
    drop_interval: tuple[float, float] | None  # None if undefined on most resampled test splits
    agreement: float | None  # fraction of samples with equal argmax; None if outputs are no scores
    latency_ms: float
    latency_quartiles_ms: tuple[float, float]
    latency_ratio: float
    bytes: int


@dataclass(frozen=True)
class ValidationResult:
    """A file, measured in onnxruntime on the test split."""

    path: str
    metric: Metric  # meaning of the accuracy
    accuracy: AccuracyResult
    sparsity: float | None  # None without layer weights
    compression: float | None  # of the layer weights
    model_compression: float | None  # of all float weights
    nonzeros: int | None
    bytes: int
    load_ms: float
    batch: int  # samples of the batch that latency was measured on
    threads: int
    provider: str
    notes: tuple[str, ...]
    latency_ms: float
    latency_quartiles_ms: tuple[float, float]
    against: ReferenceResult | None = None


def validate(
    model: AnyPath,
    data: DataSettings,
    *,
    against: AnyPath | None = None,
    seed: int = 0,
    provider: str = PROVIDER,
    distill_outputs_as: DistillOutputs = "auto",
    task_settings: TaskSettings = INFERRED_TASK,
    custom_task: CustomTask | None = None,
) -> ValidationResult:
    """Measure a file on the test split.

    Args:
        model: The file.
        data: How to read the data.
        against: Another file to measure in comparison. Its outputs replace missing labels.
        seed: Seed of the splits.
        provider: Execution provider of onnxruntime.
        distill_outputs_as: How to compare outputs without labels.
        task_settings: The task; by default it is inferred.
        custom_task: Task of the user, if any.

    Raises:
        InputError: The data do not fit the file, or have no labels and `against` is None.
    """
    file = read_model_file(model)
    data_splits = open_model_data(file, data, seed, task_settings, custom_task)
    session = Session(Path(model), provider, library=find_library(file.model), is_foreign=True)
    other = other_file = None
    if against is not None:
        other_file = read_model_file(against)
        library = find_library(other_file.model)
        other = Session(Path(against), provider, library=library, is_foreign=True)
    evaluator, data_splits = make_evaluator(
        data_splits,
        file.model.graph,
        session,
        other,
        task_settings,
        distill_outputs_as,
        custom_task,
    )
    sparse_session = None
    if session.library is not None:
        sparse_session = SparseVsDenseSession(session)
    compute_outputs = (sparse_session or session).compute_outputs
    accuracy, scores = evaluator(compute_outputs, data_splits.test)
    layer_names = [layer.name for layer in find_layer_weights(flatten_model(file.model)[0])]
    sparsity = compression = model_compression = nonzeros = None
    if layer_names:
        counts = count_sparsity(file.model, layer_names)
        sparsity = counts.layers.sparsity
        compression = counts.layers.compression
        model_compression = counts.model.compression
        nonzeros = counts.layers.nonzeros
    batch = data_splits.test.read_first(LATENCY_BATCHES[-1])
    sessions = [session]
    if other is not None:
        sessions.append(other)
    timings = time_batch(sessions, batch.inputs)
    result = ValidationResult(
        path=os.fspath(model),
        metric=evaluator.task.metric,
        accuracy=accuracy,
        sparsity=sparsity,
        compression=compression,
        model_compression=model_compression,
        nonzeros=nonzeros,
        bytes=file.num_bytes,
        load_ms=session.load_ms,
        batch=len(batch),
        threads=session.threads,
        provider=provider,
        notes=(*data_splits.notes, *_describe_sparse_ops(sparse_session, file.model)),
        latency_ms=timings[0].ms,
        latency_quartiles_ms=timings[0].quartiles,
    )
    if other is None or other_file is None:
        return result
    task = evaluator.task
    other_accuracy, other_scores = evaluator.evaluate_original(
        other.compute_outputs, data_splits.test
    )
    reference = ReferenceResult(
        path=str(other.path),
        accuracy=other_accuracy,
        drop=task.metric.compute_drop(other_accuracy.value, accuracy.value),
        drop_interval=task.compute_drop_interval(other_scores, scores),
        agreement=_measure_agreement(evaluator, accuracy, session, other, data_splits),
        latency_ms=timings[1].ms,
        latency_quartiles_ms=timings[1].quartiles,
        latency_ratio=timings[0].ms / timings[1].ms,
        bytes=other_file.num_bytes,
    )
    return replace(result, against=reference)


def validate_against(
    model: Path, other: Path, settings: Settings, custom_task: CustomTask | None
) -> ValidationResult:
    """Measure a file against the file that it was made of, with the settings of a run."""
    return validate(
        model,
        settings.data,
        against=other,
        seed=settings.train.seed,
        distill_outputs_as=settings.train.distill_outputs_as,
        task_settings=settings.task,
        custom_task=custom_task,
    )


def make_evaluator(
    data: DatasetSplits,
    graph: GraphProto,
    session: Session,
    other: Session | None,
    task_settings: TaskSettings,
    distill_outputs_as: DistillOutputs,
    custom_task: CustomTask | None,
) -> tuple[Evaluator, DatasetSplits]:
    """Infer the task of a file and return its evaluator, and the data that the task reads.

    The sessions are set to the outputs that the task evaluates.

    Args:
        data: The data.
        graph: Graph of the file.
        session: Session of the file.
        other: Session of the file to compare with, if any.
        task_settings: The task, or how to infer it.
        distill_outputs_as: How to compare outputs without labels.
        custom_task: Task of the user, if any.

    Raises:
        InputError: The data have no labels and `other` is None, or both files have other outputs.
    """
    has_labels = data.has_labels and task_settings.kind != "distillation"
    if custom_task is not None:
        has_labels = custom_task.has_function("score") or custom_task.has_function("measure")
    if not has_labels and other is None:
        raise InputError(
            "the data have no labels",
            "pass --against ORIGINAL.onnx, to compare the outputs of both",
        )
    sessions = [session]
    compute_original = None
    if other is not None:
        sessions.append(other)
        compute_original = other.compute_outputs
    shapes = [each.infer_output_shapes(data.test) for each in sessions]
    inferred = []
    for file_shapes in shapes:
        inferred.append(
            infer_task(data, graph, file_shapes, PROBE_SAMPLES, task_settings, distill_outputs_as)
        )
    task, data = inferred[0]
    if custom_task is not None and isinstance(task, DistillationTask):
        task = CustomTaskAdapter(custom_task, task)
    if not has_labels and shapes[0] != shapes[-1]:
        raise InputError(
            f"{sessions[0].path} and {sessions[-1].path} have different outputs",
            "pass two files of one model",
        )
    for each in sessions:
        each.positions = [output.position for output in task.outputs]
    return Evaluator(task, compute_original), data


def _measure_agreement(
    evaluator: Evaluator,
    accuracy: AccuracyResult,
    session: Session,
    other: Session,
    data: DatasetSplits,
) -> float | None:
    """Return the fraction of test samples for which two files have the same largest output.

    It is None if the outputs are not class scores.
    """
    task = evaluator.task
    if task.metric is R2_VS_ORIGINAL:
        return accuracy.argmax_agreement
    if task.is_relative:
        return accuracy.value
    if any(output.kind != "scores" for output in task.outputs):
        return None
    compare = Evaluator(DistillationTask(task.outputs), other.compute_outputs)
    return compare(session.compute_outputs, data.test)[0].value


def _describe_sparse_ops(session: SparseVsDenseSession | None, model: OnnxModel) -> list[str]:
    """Return a note if a file has sparse operators: whether they were used, and how they differ."""
    if session is not None:
        difference = session.check_differences()
        return [
            f"measured with the sparse operators at {session.session.library}; outputs differ from "
            f"those without them by at most {difference:.1e} of the largest"
        ]
    if fast.uses_sparse_ops(model):
        return [f"measured without the sparse operators: {fast.explain_missing_library()}"]
    return []
