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

from ltp_pipeline import closeness, exporters, threads
from ltp_pipeline.config import DataSettings, Imitate, KernelSettings, TaskSettings
from ltp_pipeline.data import ANY_TASK, Data, Split, open_for
from ltp_pipeline.data.checks import stopped_by
from ltp_pipeline.errors import ExportFailed, InputError, first_line
from ltp_pipeline.exporters.counting import count, count_in_file
from ltp_pipeline.files import AnyPath
from ltp_pipeline.own_task import OwnTask
from ltp_pipeline.records import ExportedFile, Latency, Measured, Original, Sparsity, State, Validation
from ltp_pipeline.results import Against, Measurement
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.import_model.kernels import find_kernels
from ltp_pipeline.stages.import_model.try_out import try_out
from ltp_pipeline.tasks import Imitation, find_task
from ltp_pipeline.tasks.evaluator import Evaluator, outcomes
from ltp_pipeline.tasks.imitation import EXPLAINED
from ltp_pipeline.tasks.own import Own

if TYPE_CHECKING:
    from onnx import GraphProto

    from ltp_pipeline.records import Array
    from ltp_pipeline.stages.import_model.network import Network
    from ltp_pipeline.stages.train import Job
    from ltp_pipeline.task import Batch, Task

LATENCY_ROUNDS = 15
FEWEST_ROUNDS = 3
LATENCY_SECONDS = 10.0  # after which no round is begun, once there are the fewest
LATENCY_BATCHES = (1, 16)
LATENCY_BATCH = LATENCY_BATCHES[-1]
PARITY_SAMPLES = 64
PARITY_LIMIT = 1e-3  # relative, above a floor (closeness.py)
# Files whose weights were rounded on purpose, and half-precision models, which round at every node where torch
# does not: only something broken differs by more. That files hold what they should is proven bit for bit at export;
# whether that is good enough, accuracy tells.
ROUNDED_LIMITS = {"fp16": 2e-2, "int8": 0.5}
PROVIDER = "CPUExecutionProvider"
TWO = 2  # samples by which an output is told to have a row for each


class Session:
    """A file loaded in onnxruntime; hides whether its batch size is fixed."""

    def __init__(
        self,
        path: Path,
        provider: str = PROVIDER,
        positions: Sequence[int] = (0,),
        optimised: bool = True,
        single: bool = False,  # on one thread, whatever the run uses
    ) -> None:
        import onnxruntime

        if provider not in onnxruntime.get_available_providers():
            known = ", ".join(onnxruntime.get_available_providers())
            raise InputError(f"onnxruntime has no execution provider {provider!r} here", f"available: {known}")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what is wrong is raised, and said once
        options.intra_op_num_threads = self.threads = 1 if single else threads.current()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if not optimised:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        begun = time.perf_counter()
        try:
            self.session = onnxruntime.InferenceSession(str(path), options, providers=[provider])
        except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common root
            line = first_line(error)
            raise InputError(f"onnxruntime cannot load {path}: {line}", "check that the file is a model") from None
        self.path = path
        self.positions = positions  # of the outputs that are judged
        self.load_ms = 1000 * (time.perf_counter() - begun)
        overridable = {i.name for i in self.session.get_overridable_initializers()}
        inputs = [i for i in self.session.get_inputs() if i.name not in overridable]
        self.half = {i.name for i in inputs if i.type == "tensor(float16)"}
        sizes = [i.shape[0] for i in inputs if i.shape and isinstance(i.shape[0], int)]
        self.fixed_batch = sizes[0] if sizes else None

    def shapes(self, split: Split) -> list[tuple[int, ...] | None]:
        """Shape of each output for TWO samples; None where it is no floating-point tensor with rows for samples."""
        given = self.fixed_batch or TWO
        found = self._run(split.read(np.arange(given) % len(split)).inputs)
        rows = [isinstance(y, np.ndarray) and y.dtype.kind == "f" and y.shape[:1] == (given,) for y in found]
        return [(TWO, *y.shape[1:]) if r else None for y, r in zip(found, rows, strict=True)]

    def outputs(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The judged outputs for a batch of any size, one row per sample."""
        samples = len(next(iter(inputs.values())))
        step = self.fixed_batch or samples
        rows: list[list[Array]] = [[] for _ in self.positions]
        for start in range(0, samples, step):
            missing = max(start + step - samples, 0)
            found = self._run({name: _filled(x[start : start + step], missing) for name, x in inputs.items()})
            for kept, position in zip(rows, self.positions, strict=True):
                if len(found[position]) != step:
                    what = f"output {position} of {self.path} has {len(found[position])} rows for {step} samples"
                    raise InputError(what, "give a model whose outputs have one row per sample")
                kept.append(found[position][: step - missing])
        return [np.concatenate(kept).astype(np.float32, copy=False) for kept in rows]

    def _run(self, inputs: Mapping[str, Array]) -> list[Array]:
        feeds = {name: x.astype(np.float16) if name in self.half else x for name, x in inputs.items()}
        try:
            found: list[Array] = self.session.run(None, feeds)
        except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common root
            raise stopped_by(inputs, f"onnxruntime does not run {self.path}", error) from None
        return found


def _filled(part: Array, missing: int) -> Array:
    """A part of a batch with its last row repeated, as often as rows are missing."""
    return np.concatenate([part, np.repeat(part[-1:], missing, axis=0)]) if missing else part


class Timing(NamedTuple):
    """Milliseconds of one batch: the median, and between which values the middle half of the rounds lay."""

    ms: float
    quartiles: tuple[float, float]


def latency(sessions: Sequence[Session], x: Mapping[str, Array], rounds: int = LATENCY_ROUNDS) -> list[Timing]:
    """Time one batch, in turns so that all sessions see the same machine."""
    times: list[list[float]] = [[] for _ in sessions]
    for session in sessions:
        session.outputs(x)
    ends = time.perf_counter() + LATENCY_SECONDS
    for nth in range(rounds):
        if nth >= FEWEST_ROUNDS and time.perf_counter() > ends:
            break
        for session, taken in zip(sessions, times, strict=True):
            begun = time.perf_counter()
            session.outputs(x)
            taken.append(1000 * (time.perf_counter() - begun))
    low, middle, high = np.percentile(times, [25, 50, 75], axis=1).tolist()
    return [Timing(m, (a, b)) for a, m, b in zip(low, middle, high, strict=True)]


def latencies(sessions: Sequence[Session], split: Split) -> list[Latency]:
    """The first session's for batches of both sizes, in turns with the second's, where there is one."""
    found = []
    for size in LATENCY_BATCHES:
        batch = split.first(size)
        mine, *theirs = latency(sessions, batch.inputs)
        found.append(Latency(len(batch), sessions[0].threads, mine.ms, theirs[0].ms if theirs else None))
    return found


class Reference(NamedTuple):
    """The original in onnxruntime, beside which files are measured."""

    session: Session
    evaluator: Evaluator
    correct: Array  # how it did on each sample of the test split
    single: Session | None = None  # on one thread, where the other has more

    def latencies(self, path: Path, session: Session, split: Split) -> tuple[Latency, ...]:
        """Those of a file beside the original: on one thread, then on all."""
        found = []
        if self.single is not None:
            alone = Session(path, positions=session.positions, single=True)
            found += latencies([alone, self.single], split)
        return (*found, *latencies([session, self.session], split))


def measure_original(job: Job) -> tuple[Original, Reference]:
    """Accuracy, load time and latency of the file as it was given; and what others are measured beside."""
    data, path = job.data, job.network.file.path
    assert path is not None  # noqa: S101 - a run reads its model from a path
    session = Session(path, positions=[o.position for o in job.task.outputs])
    evaluator = Evaluator(job.task, session.outputs)
    accuracy, correct = evaluator.of_the_original(session.outputs, data.test)
    same = data.val is data.test
    validation = accuracy if same else evaluator.of_the_original(session.outputs, data.val)[0]
    single = Session(path, positions=session.positions, single=True) if session.threads > 1 else None
    speed = [one for s in (single, session) if s is not None for one in latencies([s], data.test)]
    original = Original(accuracy, validation.value, correct, session.load_ms, tuple(speed))
    return original, Reference(session, evaluator, correct, single)


def run(
    files: Sequence[ExportedFile],
    network: Network,
    state: State,
    reference: Reference,
    split: Split,
    epochs: Mapping[str, int],
) -> Measured:
    """Prove the exported files of a network, one by one."""
    expected = _torch_outputs(network, state, split.first(PARITY_SAMPLES), reference.evaluator.task)
    elements = sum(counted.elements for _, counted in exporters.float_weights(network.file.model))
    results = [_prove(file, network, expected, elements, reference, split) for file in files]
    metric = reference.evaluator.task.metric
    least_accurate = metric.worst(results, lambda result: result[0].accuracy.value)
    exact = next((correct for v, correct in results if v.file.is_exact), results[0][1])
    return Measured([v for v, _ in results], least_accurate[1], epochs, metric, exact)


def _prove(
    file: ExportedFile,
    network: Network,
    expected: Sequence[Array],
    elements: int,
    reference: Reference,
    split: Split,
) -> tuple[Validation, Array]:
    session = Session(file.path, positions=[o.position for o in reference.evaluator.task.outputs])
    accuracy, correct = reference.evaluator(session.outputs, split)
    inputs = split.first(PARITY_SAMPLES).inputs
    quantised = file.quantization is not None  # which moves outputs on purpose; by how much, accuracy tells
    kind = "fp16" if network.forward.is_half else file.values
    limit = max(ROUNDED_LIMITS.get(kind, PARITY_LIMIT), ROUNDED_LIMITS.get(file.values, 0.0))
    parity = 0.0
    outputs = session.outputs(inputs)
    for i, wanted in enumerate(expected):
        gap = closeness.gap(outputs[i], wanted)
        parity = max(parity, gap.apart)
        if quantised:
            continue
        if closeness.judge(gap, limit, partial(_noise, session, inputs, i)) is closeness.Verdict.DIFFERENT:
            raise ExportFailed(
                f"{file.name} computes something else than the pruned network: outputs differ by {gap.apart:.3g}",
                "please report this as a bug",
            )
    counted = count_in_file(file.path, [k.name for k in network.kernels])
    proven = Validation(
        file=file,
        accuracy=accuracy,
        counted=counted.kernels,
        whole=Sparsity(elements, counted.whole.nonzeros),
        nonzeros=counted.nonzeros,
        parity_max_abs=parity,
        load_ms=session.load_ms,
        latency=reference.latencies(file.path, session, split),
        outcomes=outcomes(reference.evaluator.task, reference.correct, correct),
    )
    return proven, correct


def _noise(session: Session, inputs: Mapping[str, Array], position: int) -> float:
    """How far an output of a file is from itself without optimisation, or on the next smaller numbers."""
    plain = Session(session.path, positions=session.positions, optimised=False)
    smaller = {name: np.nextafter(x, x.dtype.type(0)) if x.dtype.kind == "f" else x for name, x in inputs.items()}
    others = (plain.outputs(inputs), session.outputs(smaller))
    outputs = session.outputs(inputs)[position]
    return max(closeness.gap(other[position], outputs).apart for other in others)


def _torch_outputs(network: Network, state: State, batch: Batch, task: Task) -> list[Array]:
    """What files of this state must give; computed without the layout that training prefers."""
    import torch

    device = next(iter(state.values())).device
    inputs = {name: torch.from_numpy(x).to(device) for name, x in batch.inputs.items()}
    with torch.inference_mode(), torch.backends.cudnn.flags(enabled=False):  # which would round to TF32
        outputs = network.forward(inputs, state)
    return [outputs[output.position].float().cpu().numpy() for output in task.outputs]


def validate(
    model: AnyPath,
    data: DataSettings,
    *,
    against: AnyPath | None = None,
    seed: int = 0,
    provider: str = PROVIDER,
    imitate: Imitate = "auto",
    asked: TaskSettings = ANY_TASK,
    own: OwnTask | None = None,
) -> Measurement:
    """Measure any file on the test split, and beside another one if given."""
    file = import_model.read(model)
    kernels = [k.name for k in find_kernels(file.model, KernelSettings())]
    opened = open_for(file, data, seed, asked, own)
    shown = opened.test.first(TWO).inputs
    try_out(file, Path(model), shown)
    session = Session(Path(model), provider)
    original = None if against is None else import_model.read(against)
    other, other_bytes = None, 0
    if against is not None and original is not None:
        try_out(original, Path(against), shown)
        other, other_bytes = Session(Path(against), provider), original.bytes
    evaluator = find_evaluator(opened, file.model.graph, session, other, asked, imitate, own)
    accuracy, correct = evaluator(session.outputs, opened.test)
    counts = count(file.model, kernels) if kernels else None
    counted = counts.kernels if counts else None
    batch = opened.test.first(LATENCY_BATCH)
    mine, *theirs = latency([s for s in (session, other) if s is not None], batch.inputs)
    result = Measurement(
        path=os.fspath(model),
        metric=evaluator.task.metric,
        accuracy=accuracy,
        sparsity=counted.sparsity if counted else None,
        compression=counted.compression if counted else None,
        model_compression=counts.whole.compression if counts else None,
        nonzeros=counted.nonzeros if counted else None,
        bytes=file.bytes,
        load_ms=session.load_ms,
        batch=len(batch),
        threads=session.threads,
        provider=provider,
        notes=tuple(opened.notes),
        latency_ms=mine.ms,
        latency_quartiles_ms=mine.quartiles,
    )
    if other is None or against is None:
        return result
    other_accuracy, other_correct = evaluator.of_the_original(other.outputs, opened.test)
    task = evaluator.task
    agreed = accuracy.equal_argmax if task.metric is EXPLAINED else accuracy.value
    if not task.is_relative:
        scores = all(output.kind == "scores" for output in task.outputs)
        other_run = Evaluator(Imitation(task.outputs), other.outputs)
        agreed = other_run(session.outputs, opened.test)[0].value if scores else None
    return replace(
        result,
        against=Against(
            path=os.fspath(against),
            accuracy=other_accuracy,
            drop=task.metric.drop(other_accuracy.value, accuracy.value),
            drop_interval=task.interval(other_correct, correct),
            agreement=agreed,
            latency_ms=theirs[0].ms,
            latency_quartiles_ms=theirs[0].quartiles,
            latency_ratio=mine.ms / theirs[0].ms,
            bytes=other_bytes,
        ),
    )


def find_evaluator(
    data: Data,
    graph: GraphProto,
    session: Session,
    other: Session | None,
    asked: TaskSettings,
    imitate: Imitate,
    own: OwnTask | None,
) -> Evaluator:
    """What evaluates a file that was given without its run."""
    labelled = data.has_labels and asked.kind != "imitate"
    if own is not None:
        labelled = own.has("score") or own.has("measure")
    if not labelled and other is None:
        raise InputError("the data have no labels", "give --against ORIGINAL.onnx, to measure how far the two agree")
    shapes = [s.shapes(data.test) for s in (session, other) if s is not None]
    task, *_ = [find_task(data, graph, found, TWO, asked, imitate) for found in shapes]
    if own is not None and isinstance(task, Imitation):
        task = Own(own, task)
    if not labelled and shapes[0] != shapes[-1] and other is not None:
        raise InputError(f"{session.path} and {other.path} have different outputs", "give two files of one model")
    for s in (session, other):
        if s is not None:
            s.positions = [o.position for o in task.outputs]
    return Evaluator(task, None if other is None else other.outputs)
