"""Measure a file in onnxruntime: accuracy, sparsity, load time, and latency beside the original's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ltp_pipeline.data.dataset import DatasetSplits, Split
from ltp_pipeline.data.open import INFERRED_TASK
from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.exporters.files.count import (
    count_file_sparsity,
    count_sparsity,
    iter_float_weights,
)
from ltp_pipeline.exporters.files.run_proof import PROVIDER
from ltp_pipeline.exporters.graphs import fast
from ltp_pipeline.exporters.sparse_ops.library import sparse_ops_library
from ltp_pipeline.graph.layer_weights import find_layer_weights
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.graph.sparsity import Sparsity
from ltp_pipeline.results.records import (
    ExportedFile,
    ExportResult,
    LatencyResult,
    MeasuredFile,
    MeasuredNetwork,
    MeasuredOriginal,
)
from ltp_pipeline.results.tool_results import ReferenceResult, ValidationResult
from ltp_pipeline.settings.schema import DataSettings, DistillOutputs, Settings, TaskSettings
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.measure.session import (
    LATENCY_BATCHES,
    TWO,
    Session,
    SparseVsDenseSession,
    latencies,
    latency,
    library_for,
)
from ltp_pipeline.system import tolerance
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.files import AnyPath
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_data import open_model_data
from ltp_pipeline.tasks.custom_task import CustomTaskAdapter
from ltp_pipeline.tasks.distillation import R2_VS_ORIGINAL, DistillationTask
from ltp_pipeline.tasks.evaluator import Evaluator, count_pairs
from ltp_pipeline.tasks.infer import infer_task

if TYPE_CHECKING:
    from onnx import GraphProto

    from ltp_pipeline.data.dataset import Batch
    from ltp_pipeline.stages.import_model.network import Network
    from ltp_pipeline.stages.train.job import RunContext
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.protocol import Task

PARITY_SAMPLES = 64
PARITY_LIMIT = 1e-3  # relative, above a floor (closeness.py)
# Files whose weights were rounded on purpose, and half-precision models, which round at every node where torch
# does not: only something broken differs by more. That files hold what they should is proven bit for bit at export;
# whether that is good enough, accuracy tells.
ROUNDED_LIMITS = {"fp16": 2e-2, "int8": 0.5}


class Reference(NamedTuple):
    """The original in onnxruntime, beside which files are measured."""

    session: Session
    evaluator: Evaluator
    correct: Array  # how it did on each sample of the test split
    single: Session | None = None  # on one thread, where the other has more

    def latencies(self, path: Path, session: Session, split: Split) -> tuple[LatencyResult, ...]:
        """Those of a file beside the original: on one thread, then on all."""
        found = []
        if self.single is not None:
            alone = Session(path, positions=session.positions, single=True, library=session.library)
            found += latencies([alone, self.single], split)
        return (*found, *latencies([session, self.session], split))


def measure_original(job: RunContext) -> tuple[MeasuredOriginal, Reference]:
    """Accuracy, load time and latency of the file as it was given; and what others are measured beside."""
    data, path = job.data, job.network.file.path
    assert path is not None  # noqa: S101 - a run reads its model from a path
    session = Session(path, positions=[o.position for o in job.task.outputs])
    evaluator = Evaluator(job.task, session.outputs)
    accuracy, correct = evaluator.evaluate_original(session.outputs, data.test)
    same = data.val is data.test
    validation = accuracy if same else evaluator.evaluate_original(session.outputs, data.val)[0]
    single = (
        Session(path, positions=session.positions, single=True) if session.threads > 1 else None
    )
    speed = [one for s in (single, session) if s is not None for one in latencies([s], data.test)]
    original = MeasuredOriginal(accuracy, validation.value, correct, session.load_ms, tuple(speed))
    return original, Reference(session, evaluator, correct, single)


def run(
    exported: ExportResult,
    network: Network,
    state: StateDict,
    reference: Reference,
    split: Split,
    epochs: Mapping[str, int],
) -> MeasuredNetwork:
    """Prove the exported files of a network, one by one."""
    expected = _torch_outputs(
        network, state, split.read_first(PARITY_SAMPLES), reference.evaluator.task
    )
    elements = sum(counted.elements for _, counted in iter_float_weights(network.file.model))
    results = [
        _prove(file, network, expected, elements, reference, split) for file in exported.files
    ]
    metric = reference.evaluator.task.metric
    least_accurate = metric.worst(results, lambda result: result[0].accuracy.value)
    exact = next((correct for v, correct in results if v.file.is_exact), results[0][1])
    return MeasuredNetwork(
        [v for v, _ in results], least_accurate[1], epochs, metric, exact, exported.skipped
    )


def _prove(
    file: ExportedFile,
    network: Network,
    expected: Sequence[Array],
    elements: int,
    reference: Reference,
    split: Split,
) -> tuple[MeasuredFile, Array]:
    positions = [o.position for o in reference.evaluator.task.outputs]
    library = None if file.sparse_kernels is None else sparse_ops_library()
    session = Session(file.path, positions=positions, library=library)
    beside = None if library is None else SparseVsDenseSession(session)
    accuracy, correct = reference.evaluator(beside.outputs if beside else session.outputs, split)
    inputs = split.read_first(PARITY_SAMPLES).inputs
    quantised = (
        file.quantization is not None
    )  # which moves outputs on purpose; by how much, accuracy tells
    kind = "fp16" if network.forward.is_half else file.weight_storage
    limit = max(
        ROUNDED_LIMITS.get(kind, PARITY_LIMIT), ROUNDED_LIMITS.get(file.weight_storage, 0.0)
    )
    parity = 0.0
    outputs = session.outputs(inputs)
    for i, wanted in enumerate(expected):
        gap = tolerance.max_difference(outputs[i], wanted)
        parity = max(parity, gap.difference)
        if quantised:
            continue
        if (
            tolerance.check_tolerance(gap, limit, partial(_noise, session, inputs, i))
            is tolerance.Agreement.DIFFERENT
        ):
            raise ExportFailed(
                f"{file.name} computes something else than the pruned network: outputs differ by {gap.difference:.3g}",
                "please report this as a bug",
            )
    counted = count_file_sparsity(file.path, [k.name for k in network.layer_weights])
    proven = MeasuredFile(
        file=file,
        accuracy=accuracy,
        counted=counted.layers,
        whole=Sparsity(elements, counted.model.nonzeros),
        nonzeros=counted.nonzeros,
        parity_max_abs_diff=parity,
        load_ms=session.load_ms,
        latency=reference.latencies(file.path, session, split),
        paired_counts=count_pairs(reference.evaluator.task, reference.correct, correct),
        kernels_gap=beside.largest() if beside else None,
    )
    return proven, correct


def _noise(session: Session, inputs: Mapping[str, Array], position: int) -> float:
    """How far an output of a file is from itself without optimisation, or on the next smaller numbers."""
    plain = Session(
        session.path, positions=session.positions, optimised=False, library=session.library
    )
    smaller = {
        name: np.nextafter(x, x.dtype.type(0)) if x.dtype.kind == "f" else x
        for name, x in inputs.items()
    }
    others = (plain.outputs(inputs), session.outputs(smaller))
    outputs = session.outputs(inputs)[position]
    return max(tolerance.max_difference(other[position], outputs).difference for other in others)


def _torch_outputs(network: Network, state: StateDict, batch: Batch, task: Task) -> list[Array]:
    """What files of this state must give; computed without the layout that training prefers."""
    import torch

    device = next(iter(state.values())).device
    inputs = {name: torch.from_numpy(x).to(device) for name, x in batch.inputs.items()}
    with (
        torch.inference_mode(),
        torch.backends.cudnn.flags(enabled=False),
    ):  # which would round to TF32
        outputs = network.forward(inputs, state)
    return [outputs[output.position].float().cpu().numpy() for output in task.outputs]


def validate(
    model: AnyPath,
    data: DataSettings,
    *,
    against: AnyPath | None = None,
    seed: int = 0,
    provider: str = PROVIDER,
    imitate: DistillOutputs = "auto",
    asked: TaskSettings = INFERRED_TASK,
    own: CustomTask | None = None,
) -> ValidationResult:
    """Measure any file on the test split, and beside another one if given."""
    file = read_model_file(model)
    kernels = [k.name for k in find_layer_weights(flatten_model(file.model)[0])]
    opened = open_model_data(file, data, seed, asked, own)
    beside = None if against is None else read_model_file(against)
    session = Session(Path(model), provider, library=library_for(file.model), is_foreign=True)
    other_bytes = 0 if beside is None else beside.num_bytes
    other = None
    if against is not None and beside is not None:
        other = Session(Path(against), provider, library=library_for(beside.model), is_foreign=True)
    evaluator, opened = find_evaluator(
        opened, file.model.graph, session, other, asked, imitate, own
    )
    kernels_beside = SparseVsDenseSession(session) if session.library is not None else None
    accuracy, correct = evaluator(
        kernels_beside.outputs if kernels_beside else session.outputs, opened.test
    )
    counts = count_sparsity(file.model, kernels) if kernels else None
    counted = counts.layers if counts else None
    batch = opened.test.read_first(LATENCY_BATCHES[-1])
    mine, *theirs = latency([s for s in (session, other) if s is not None], batch.inputs)
    result = ValidationResult(
        path=os.fspath(model),
        metric=evaluator.task.metric,
        accuracy=accuracy,
        sparsity=counted.sparsity if counted else None,
        compression=counted.compression if counted else None,
        model_compression=counts.model.compression if counts else None,
        nonzeros=counted.nonzeros if counted else None,
        bytes=file.num_bytes,
        load_ms=session.load_ms,
        batch=len(batch),
        threads=session.threads,
        provider=provider,
        notes=(*opened.notes, *_kernel_notes(kernels_beside, file.model)),
        latency_ms=mine.ms,
        latency_quartiles_ms=mine.quartiles,
    )
    if other is None or against is None:
        return result
    other_accuracy, other_correct = evaluator.evaluate_original(other.outputs, opened.test)
    task = evaluator.task
    agreed = accuracy.argmax_agreement if task.metric is R2_VS_ORIGINAL else accuracy.value
    if not task.is_relative:
        scores = all(output.kind == "scores" for output in task.outputs)
        other_run = Evaluator(DistillationTask(task.outputs), other.outputs)
        agreed = other_run(session.outputs, opened.test)[0].value if scores else None
    return replace(
        result,
        against=ReferenceResult(
            path=os.fspath(against),
            accuracy=other_accuracy,
            drop=task.metric.drop(other_accuracy.value, accuracy.value),
            drop_interval=task.compute_drop_interval(other_correct, correct),
            agreement=agreed,
            latency_ms=theirs[0].ms,
            latency_quartiles_ms=theirs[0].quartiles,
            latency_ratio=mine.ms / theirs[0].ms,
            bytes=other_bytes,
        ),
    )


def validate_beside(
    model: Path, other: Path, settings: Settings, own: CustomTask | None
) -> ValidationResult:
    """Measure a file beside the one that it was made of, as settings say."""
    return validate(
        model,
        settings.data,
        against=other,
        seed=settings.train.seed,
        imitate=settings.train.distill_outputs_as,
        asked=settings.task,
        own=own,
    )


def _kernel_notes(beside: SparseVsDenseSession | None, model: OnnxModel) -> list[str]:
    """What is told of a file that uses sparse kernels."""
    if beside is None:
        is_fast = fast.uses_sparse_ops(model)
        return (
            [f"measured without the sparse kernels: {fast.explain_missing_library()}"]
            if is_fast
            else []
        )
    apart = (
        f"outputs differ from those without them by at most {beside.largest():.1e} of the largest"
    )
    return [f"measured with the sparse kernels at {beside.session.library}; {apart}"]


def find_evaluator(
    data: DatasetSplits,
    graph: GraphProto,
    session: Session,
    other: Session | None,
    asked: TaskSettings,
    imitate: DistillOutputs,
    own: CustomTask | None,
) -> tuple[Evaluator, DatasetSplits]:
    """Return what evaluates a file without its run, and the data that its task reads."""
    labelled = data.has_labels and asked.kind != "distillation"
    if own is not None:
        labelled = own.has_function("score") or own.has_function("measure")
    if not labelled and other is None:
        raise InputError(
            "the data have no labels",
            "give --against ORIGINAL.onnx, to measure how far the two agree",
        )
    shapes = [s.shapes(data.test) for s in (session, other) if s is not None]
    inferred = [infer_task(data, graph, found, TWO, asked, imitate) for found in shapes]
    task, data = inferred[0]
    if own is not None and isinstance(task, DistillationTask):
        task = CustomTaskAdapter(own, task)
    if not labelled and shapes[0] != shapes[-1] and other is not None:
        raise InputError(
            f"{session.path} and {other.path} have different outputs", "give two files of one model"
        )
    for s in (session, other):
        if s is not None:
            s.positions = [o.position for o in task.outputs]
    return Evaluator(task, None if other is None else other.outputs), data
