"""Measure a file in onnxruntime: accuracy, sparsity, load time, and latency beside the original's."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ltp_pipeline import exporters, threads
from ltp_pipeline.config import DataSettings, Imitate, KernelSettings
from ltp_pipeline.data import Data, Split, check_labels, open_data
from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.files import AnyPath
from ltp_pipeline.intervals import paired_interval
from ltp_pipeline.records import ExportedFile, ImportedModel, Latency, Measured, Original, Sparsity, Validation
from ltp_pipeline.results import Against, Measurement
from ltp_pipeline.stages import closeness, import_model, metric
from ltp_pipeline.stages.import_model.kernels import find_kernels
from ltp_pipeline.stages.metric import Judge, Metric

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

    from ltp_pipeline.records import Array
    from ltp_pipeline.stages.training import Training

LATENCY_ROUNDS = 15
LATENCY_BATCH = 16
PARITY_SAMPLES = 64
PARITY_LIMIT = 1e-3  # relative, above a floor (closeness.py)
# Files whose weights were rounded on purpose, and half-precision models, which round at every node where the module
# does not: only something broken differs by more. That files hold what they should is proven bit for bit at export;
# whether that is good enough, accuracy tells.
ROUNDED_LIMITS = {"fp16": 2e-2, "int8": 0.5}
PROVIDER = "CPUExecutionProvider"
TWO = 2  # samples by which an output is told to have a row for each


class Session:
    """A file loaded in onnxruntime; hides whether its batch size is fixed."""

    def __init__(
        self, path: Path, provider: str = PROVIDER, positions: Sequence[int] = (0,), optimised: bool = True
    ) -> None:
        import onnxruntime

        if provider not in onnxruntime.get_available_providers():
            known = ", ".join(onnxruntime.get_available_providers())
            raise InputError(f"onnxruntime has no execution provider {provider!r} here", f"available: {known}")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = self.threads = threads.current()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if not optimised:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        begun = time.perf_counter()
        try:
            self.session = onnxruntime.InferenceSession(str(path), options, providers=[provider])
        except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common root
            line = (str(error).splitlines() or [type(error).__name__])[0][:300]
            raise InputError(f"onnxruntime cannot load {path}: {line}", "check that the file is a model") from None
        self.path = path
        self.positions = positions  # of the outputs that are judged
        self.load_ms = 1000 * (time.perf_counter() - begun)
        overridable = {i.name for i in self.session.get_overridable_initializers()}
        first = next(i for i in self.session.get_inputs() if i.name not in overridable)
        self.input: str = first.name
        self.half = first.type == "tensor(float16)"
        size = first.shape[0] if first.shape else None
        self.fixed_batch = size if isinstance(size, int) else None

    def shapes(self, split: Split) -> list[tuple[int, ...] | None]:
        """Shape of each output for TWO samples; None where it is no floating-point tensor with rows for samples."""
        given = self.fixed_batch or TWO
        x = split.read(np.arange(given) % len(split))
        try:
            found = self._run(x)
        except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common root
            line = (str(error).splitlines() or [type(error).__name__])[0][:300]
            raise InputError(f"onnxruntime does not run {self.path} on this data: {line}", "check the data") from None
        rows = [isinstance(y, np.ndarray) and y.dtype.kind == "f" and y.shape[:1] == (given,) for y in found]
        return [(TWO, *y.shape[1:]) if r else None for y, r in zip(found, rows, strict=True)]

    def outputs(self, x: Array) -> list[Array]:
        """The judged outputs for a batch of any size, one row per sample."""
        step = self.fixed_batch or len(x)
        rows: list[list[Array]] = [[] for _ in self.positions]
        for start in range(0, len(x), step):
            part = x[start : start + step]
            missing = step - len(part)
            if missing:
                part = np.concatenate([part, np.repeat(part[-1:], missing, axis=0)])
            found = self._run(part)
            for kept, position in zip(rows, self.positions, strict=True):
                if len(found[position]) != step:
                    what = f"output {position} of {self.path} has {len(found[position])} rows for {step} samples"
                    raise InputError(what, "give a model whose outputs have one row per sample")
                kept.append(found[position][: step - missing])
        return [np.concatenate(kept).astype(np.float32, copy=False) for kept in rows]

    def _run(self, x: Array) -> list[Array]:
        found: list[Array] = self.session.run(None, {self.input: x.astype(np.float16) if self.half else x})
        return found


class Timing(NamedTuple):
    """Milliseconds of one batch: the median, and between which values the middle half of the rounds lay."""

    ms: float
    quartiles: tuple[float, float]


def latency(sessions: Sequence[Session], x: Array, rounds: int = LATENCY_ROUNDS) -> list[Timing]:
    """Time one batch, in turns so that all sessions see the same machine."""
    times: list[list[float]] = [[] for _ in sessions]
    for session in sessions:
        session.outputs(x)
    for _ in range(rounds):
        for session, taken in zip(sessions, times, strict=True):
            begun = time.perf_counter()
            session.outputs(x)
            taken.append(1000 * (time.perf_counter() - begun))
    low, middle, high = np.percentile(times, [25, 50, 75], axis=1).tolist()
    return [Timing(m, (a, b)) for a, m, b in zip(low, middle, high, strict=True)]


class Counts(NamedTuple):
    """What a file itself says: over all kernels, over all float weights, and the nonzeros of each kernel."""

    kernels: Sparsity
    whole: Sparsity
    nonzeros: dict[str, int]


def count_in_file(path: Path, kernels: Sequence[str]) -> Counts:
    """Sparsity as the file itself says."""
    return _count(exporters.load(path), kernels)


def _count(model: ModelProto, kernels: Sequence[str]) -> Counts:
    found = exporters.float_weights(model)
    by_name = dict(found)
    if missing := [name for name in kernels if name not in by_name]:
        raise InputError(f"the model has no tensor named '{missing[0]}'", "give the file this model was exported to")
    listed = {name: by_name[name] for name in kernels}
    whole = Sparsity.total(counted for _, counted in found)
    return Counts(Sparsity.total(listed.values()), whole, {name: c.nonzeros for name, c in listed.items()})


def measure_original(training: Training) -> tuple[Original, Session, Judge]:
    """Accuracy, load time and latency of the file as it was given; and who judges the others beside it."""
    data, path = training.data, training.imported.file.path
    assert path is not None  # noqa: S101 - a run reads its model from a path
    session = Session(path, positions=training.metric.positions)
    judge = Judge(training.metric, session.outputs)
    accuracy, correct = judge.of_the_original(session.outputs, data.test)
    same = data.val is data.test
    validation = accuracy if same else judge.of_the_original(session.outputs, data.val)[0]
    x = data.test.read(np.arange(min(LATENCY_BATCH, len(data.test))))
    speed = Latency(len(x), session.threads, latency([session], x)[0].ms)
    original = Original(accuracy, validation.value, correct, session.load_ms, speed)
    return original, session, judge


def run(
    files: Sequence[ExportedFile],
    imported: ImportedModel,
    original: Session,
    judge: Judge,
    split: Split,
    epochs: Mapping[str, int],
) -> Measured:
    """Prove the exported files of the live module, one by one."""
    elements = sum(counted.elements for _, counted in exporters.float_weights(imported.proto))
    results = [_prove(file, imported, elements, original, judge, split) for file in files]
    least_accurate = min(results, key=lambda result: result[0].accuracy.value)
    return Measured([v for v, _ in results], least_accurate[1], epochs)


def _prove(
    file: ExportedFile, imported: ImportedModel, elements: int, original: Session, judge: Judge, split: Split
) -> tuple[Validation, Array]:
    session = Session(file.path, positions=judge.metric.positions)
    accuracy, correct = judge(session.outputs, split)
    x = split.read(np.arange(min(PARITY_SAMPLES, len(split))))
    kind = "fp16" if imported.module.wide else file.values
    limit = max(ROUNDED_LIMITS.get(kind, PARITY_LIMIT), ROUNDED_LIMITS.get(file.values, 0.0))
    parity = 0.0
    outputs = session.outputs(x)
    for i, expected in enumerate(_torch_outputs(imported, x, judge.metric)):
        gap = closeness.gap(outputs[i], expected)
        if closeness.judge(gap, limit, partial(_noise, session, x, i)) is closeness.Verdict.DIFFERENT:
            raise ExportFailed(
                f"{file.name} computes something else than the pruned network: outputs differ by {gap.apart:.3g}",
                "please report this as a bug",
            )
        parity = max(parity, gap.apart)
    counted = count_in_file(file.path, [k.name for k in imported.kernels])
    timed = x[:LATENCY_BATCH]
    pruned_ms, original_ms = (found.ms for found in latency([session, original], timed))
    proven = Validation(
        file=file,
        accuracy=accuracy,
        counted=counted.kernels,
        whole=Sparsity(elements, counted.whole.nonzeros),
        nonzeros=counted.nonzeros,
        parity_max_abs=parity,
        load_ms=session.load_ms,
        latency=Latency(len(timed), session.threads, pruned_ms),
        original_latency_ms=original_ms,
    )
    return proven, correct


def _noise(session: Session, x: Array, position: int) -> float:
    """How far an output of a file is from itself without optimisation."""
    plain = Session(session.path, positions=session.positions, optimised=False)
    return closeness.gap(plain.outputs(x)[position], session.outputs(x)[position]).apart


def _torch_outputs(imported: ImportedModel, x: Array, metric: Metric) -> list[Array]:
    import torch

    module = imported.module.eval()
    device = next(module.parameters()).device
    with torch.inference_mode(), torch.backends.cudnn.flags(enabled=False):  # which would round to TF32
        outputs = module(torch.from_numpy(x).to(device))
    return [outputs[position].float().cpu().numpy() for position in metric.positions]


def validate(
    model: AnyPath,
    data: DataSettings,
    *,
    against: AnyPath | None = None,
    seed: int = 0,
    provider: str = PROVIDER,
    imitate: Imitate = "auto",
) -> Measurement:
    """Measure any file on the test split, and beside another one if given."""
    file = import_model.read(model)
    if len(file.inputs) != 1:
        raise InputError(
            f"the model has {len(file.inputs)} inputs and the data give one", "give a model with one input"
        )
    kernels = [k.name for k in find_kernels(file.proto.graph, KernelSettings())]
    opened = open_data(data, file.inputs[0], seed)
    session = Session(Path(model), provider)
    other_bytes = 0 if against is None else import_model.read(against).bytes
    other = None if against is None else Session(Path(against), provider)
    judge = _judge(opened, file.proto.graph, session, other, imitate)
    accuracy, correct = judge(session.outputs, opened.test)
    counts = _count(file.proto, kernels) if kernels else None
    counted = counts.kernels if counts else None
    x = opened.test.read(np.arange(min(LATENCY_BATCH, len(opened.test))))
    mine, *theirs = latency([s for s in (session, other) if s is not None], x)
    result = Measurement(
        path=os.fspath(model),
        metric=judge.metric.name,
        accuracy=accuracy,
        sparsity=counted.sparsity if counted else None,
        compression=counted.compression if counted else None,
        model_compression=counts.whole.compression if counts else None,
        nonzeros=counted.nonzeros if counted else None,
        bytes=file.bytes,
        load_ms=session.load_ms,
        batch=len(x),
        threads=session.threads,
        provider=provider,
        notes=tuple(opened.notes),
        latency_ms=mine.ms,
        latency_quartiles_ms=mine.quartiles,
    )
    if other is None or against is None:
        return result
    other_accuracy, other_correct = judge.of_the_original(other.outputs, opened.test)
    agreed = accuracy.value if judge.metric.name == "agreement" else accuracy.equal_argmax
    if judge.metric.name == "top-1":
        same = Judge(Metric("agreement", judge.metric.outputs), other.outputs)
        agreed = same(session.outputs, opened.test)[0].value
    return replace(
        result,
        against=Against(
            path=os.fspath(against),
            accuracy=other_accuracy,
            drop=other_accuracy.value - accuracy.value,
            drop_interval=paired_interval(other_correct, correct),
            agreement=agreed,
            latency_ms=theirs[0].ms,
            latency_quartiles_ms=theirs[0].quartiles,
            latency_ratio=mine.ms / theirs[0].ms,
            bytes=other_bytes,
        ),
    )


def _judge(data: Data, graph: GraphProto, session: Session, other: Session | None, imitate: Imitate) -> Judge:
    """Who judges a file that was given without its run."""
    shapes = session.shapes(data.test)
    if data.classes is not None:
        wanted, classes = metric.top1(graph, shapes, TWO)
        check_labels(data, classes)
        if other is not None:
            check_labels(data, metric.top1(graph, other.shapes(data.test), TWO)[1])
        return Judge(wanted)
    if other is None:
        raise InputError("the data have no labels", "give --against ORIGINAL.onnx, to measure how far the two agree")
    wanted = metric.without_labels(graph, shapes, TWO, imitate)
    if other.shapes(data.test) != shapes:
        raise InputError(f"{session.path} and {other.path} have different outputs", "give two files of one model")
    session.positions = other.positions = wanted.positions
    return Judge(wanted, other.outputs)
