"""Measure a file in onnxruntime: accuracy, sparsity, load time, and latency beside the original's."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ltp_pipeline import exporters
from ltp_pipeline.config import DataSettings, KernelSettings
from ltp_pipeline.data import Data, Split, batches, check_labels, open_data
from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.records import Accuracy, ExportedFile, ImportedModel, Measured, Original, Sparsity, Validation
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.import_model.kernels import find_kernels
from ltp_pipeline.stages.report.intervals import paired_interval

if TYPE_CHECKING:
    from onnx import ModelProto

    from ltp_pipeline.records import Array

BATCH = 64
LATENCY_ROUNDS = 15
LATENCY_BATCH = 16
PARITY_SAMPLES = 64
PARITY_LIMIT = 1e-3  # relative
# Files whose weights were rounded on purpose, and half-precision models, which round at every node where the module
# does not: only something broken differs by more. That files hold what they should is proven bit for bit at export;
# whether that is good enough, accuracy tells.
ROUNDED_LIMITS = {"fp16": 2e-2, "int8": 0.5}
PROVIDER = "CPUExecutionProvider"


class Session:
    """A file loaded in onnxruntime; hides whether its batch size is fixed."""

    def __init__(self, path: Path, provider: str = PROVIDER) -> None:
        import onnxruntime

        if provider not in onnxruntime.get_available_providers():
            known = ", ".join(onnxruntime.get_available_providers())
            raise InputError(f"onnxruntime has no execution provider {provider!r} here", f"available: {known}")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        begun = time.perf_counter()
        try:
            self.session = onnxruntime.InferenceSession(str(path), options, providers=[provider])
        except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common root
            line = (str(error).splitlines() or [type(error).__name__])[0][:300]
            raise InputError(f"onnxruntime cannot load {path}: {line}", "check that the file is a model") from None
        self.path = path
        self.load_ms = 1000 * (time.perf_counter() - begun)
        overridable = {i.name for i in self.session.get_overridable_initializers()}
        first = next(i for i in self.session.get_inputs() if i.name not in overridable)
        self.input: str = first.name
        self.half = first.type == "tensor(float16)"
        size = first.shape[0] if first.shape else None
        self.fixed_batch = size if isinstance(size, int) else None

    def classes(self, split: Split) -> int:
        """How many classes the first output scores for a sample."""
        x = split.read(np.arange(1))
        x = x.astype(np.float16) if self.half else x
        try:
            shape = self.session.run(None, {self.input: np.repeat(x, self.fixed_batch or 1, axis=0)})[0].shape
        except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common root
            line = (str(error).splitlines() or [type(error).__name__])[0][:300]
            raise InputError(f"onnxruntime does not run {self.path} on this data: {line}", "check the data") from None
        if len(shape) < 2 or shape[1] < 2 or any(d != 1 for d in shape[2:]):
            raise InputError(
                f"the first output of {self.path} has shape {shape}", "give a classifier: (batch, classes)"
            )
        return int(shape[1])

    def scores(self, x: Array) -> Array:
        """First output for a batch of any size, one row per sample."""
        if self.half:
            x = x.astype(np.float16)
        step = self.fixed_batch or len(x)
        rows = []
        for start in range(0, len(x), step):
            part = x[start : start + step]
            missing = step - len(part)
            if missing:
                part = np.concatenate([part, np.repeat(part[-1:], missing, axis=0)])
            rows.append(self.session.run(None, {self.input: part})[0][: step - missing])
        result: Array = np.concatenate(rows).astype(np.float32).reshape(len(x), -1)
        return result


def measure(session: Session, split: Split) -> tuple[Accuracy, Array]:
    """Accuracy over a whole split, and whether each sample was right."""
    right = []
    right5 = []
    for x, y in batches(split, BATCH):
        scores = session.scores(x)
        of_label = np.take_along_axis(scores, y[:, None], axis=1)
        # A tie counts by position, as argmax does; NaN never wins.
        better = (scores > of_label).sum(1) + ((scores == of_label) & (np.arange(scores.shape[1]) < y[:, None])).sum(1)
        better = np.where(np.isnan(of_label[:, 0]), scores.shape[1], better)
        right.append(better == 0)
        right5.append(better < 5)
        classes = scores.shape[1]
    correct = np.concatenate(right)
    top5 = float(np.concatenate(right5).mean()) if classes > 5 else None
    return Accuracy(float(correct.mean()), top5, len(split), split.name), correct


class Latency(NamedTuple):
    """Milliseconds of one batch: the median, and between which values the middle half of the rounds lay."""

    ms: float
    quartiles: tuple[float, float]


def latency(sessions: Sequence[Session], x: Array, rounds: int = LATENCY_ROUNDS) -> list[Latency]:
    """Time one batch, in turns so that all sessions see the same machine."""
    times: list[list[float]] = [[] for _ in sessions]
    for session in sessions:
        session.scores(x)
    for _ in range(rounds):
        for session, taken in zip(sessions, times, strict=True):
            begun = time.perf_counter()
            session.scores(x)
            taken.append(1000 * (time.perf_counter() - begun))
    low, middle, high = np.percentile(times, [25, 50, 75], axis=1).tolist()
    return [Latency(m, (a, b)) for a, m, b in zip(low, middle, high, strict=True)]


def count_in_file(path: Path, kernels: Sequence[str]) -> tuple[Sparsity, dict[str, int]]:
    """Sparsity as the file itself says, and the nonzeros of each kernel."""
    return _count(exporters.load(path), kernels)


def _count(model: ModelProto, kernels: Sequence[str]) -> tuple[Sparsity, dict[str, int]]:
    tensors = exporters.read_tensors(model, kernels)
    nonzeros = {name: int(np.count_nonzero(tensors[name])) for name in kernels}
    return Sparsity(sum(tensors[n].size for n in kernels), sum(nonzeros.values())), nonzeros


def measure_original(imported: ImportedModel, data: Data) -> tuple[Original, Session]:
    """Accuracy, load time and latency of the file as it was given."""
    assert imported.file.path is not None  # noqa: S101 - a run reads its model from a path
    session = Session(imported.file.path)
    accuracy, correct = measure(session, data.test)
    validation = accuracy if data.val is data.test else measure(session, data.val)[0]
    x = data.test.read(np.arange(min(LATENCY_BATCH, len(data.test))))
    return Original(accuracy, validation.top1, correct, session.load_ms, latency([session], x)[0].ms), session


def run(
    files: Sequence[ExportedFile], imported: ImportedModel, original: Session, split: Split, epochs: Mapping[str, int]
) -> Measured:
    """Prove the exported files of the live module, one by one."""
    results = [_prove(file, imported, original, split) for file in files]
    weakest = min(results, key=lambda result: result[0].accuracy.top1)
    return Measured([v for v, _ in results], weakest[1], epochs)


def _prove(file: ExportedFile, imported: ImportedModel, original: Session, split: Split) -> tuple[Validation, Array]:
    session = Session(file.path)
    accuracy, correct = measure(session, split)
    x = split.read(np.arange(min(PARITY_SAMPLES, len(split))))
    expected = _torch_scores(imported, x)
    parity = float(np.abs(session.scores(x) - expected).max())
    kind = "fp16" if imported.module.wide else file.values
    limit = max(ROUNDED_LIMITS.get(kind, PARITY_LIMIT), ROUNDED_LIMITS.get(file.values, 0.0))
    if not parity <= limit * max(float(np.abs(expected).max()), 1e-6):
        raise ExportFailed(
            f"{file.name} computes something else than the pruned network: outputs differ by {parity:.3g}",
            "please report this as a bug",
        )
    counted, nonzeros = count_in_file(file.path, [k.name for k in imported.kernels])
    pruned_ms, original_ms = (found.ms for found in latency([session, original], x[:LATENCY_BATCH]))
    return Validation(file, accuracy, counted, nonzeros, parity, session.load_ms, pruned_ms, original_ms), correct


def _torch_scores(imported: ImportedModel, x: Array) -> Array:
    import torch

    module = imported.module.eval()
    device = next(module.parameters()).device
    with torch.inference_mode():
        scores: Array = module(torch.from_numpy(x).to(device))[0].float().cpu().numpy().reshape(len(x), -1)
    return scores


def validate(
    model: Path | str,
    data: DataSettings,
    *,
    against: Path | str | None = None,
    seed: int = 0,
    provider: str = PROVIDER,
) -> dict[str, Any]:
    """Measure any file on the test split, and beside another one if given."""
    file = import_model.read(model)
    if len(file.inputs) != 1:
        raise InputError(
            f"the model has {len(file.inputs)} inputs and the data give one", "give a model with one input"
        )
    kernels = [k.name for k in find_kernels(file.proto.graph, KernelSettings())]
    opened = open_data(data, file.inputs[0], seed)
    session = Session(Path(model), provider)
    check_labels(opened, session.classes(opened.test))
    accuracy, correct = measure(session, opened.test)
    counted = _count(file.proto, kernels)[0] if kernels else None
    result: dict[str, Any] = {
        "path": str(model),
        "accuracy": asdict(accuracy),
        "sparsity": counted.sparsity if counted else None,
        "compression": counted.compression if counted else None,
        "nonzeros": counted.nonzeros if counted else None,
        "bytes": file.bytes,
        "load_ms": session.load_ms,
        "batch": min(LATENCY_BATCH, len(opened.test)),
        "threads": os.cpu_count(),  # onnxruntime's default: one per core
        "provider": provider,
        "notes": list(opened.notes),
    }
    x = opened.test.read(np.arange(min(LATENCY_BATCH, len(opened.test))))
    if against is None:
        (mine,) = latency([session], x)
        return {**result, "latency_ms": mine.ms, "latency_quartiles_ms": list(mine.quartiles)}
    other = Session(Path(against), provider)
    check_labels(opened, other.classes(opened.test))
    other_accuracy, other_correct = measure(other, opened.test)
    mine, theirs = latency([session, other], x)
    return {
        **result,
        "latency_ms": mine.ms,
        "latency_quartiles_ms": list(mine.quartiles),
        "against": {
            "path": str(against),
            "accuracy": asdict(other_accuracy),
            "drop": other_accuracy.top1 - accuracy.top1,
            "drop_interval": list(paired_interval(other_correct, correct)),
            "agreement": agreement(session, other, opened.test),
            "latency_ms": theirs.ms,
            "latency_quartiles_ms": list(theirs.quartiles),
            "latency_ratio": mine.ms / theirs.ms,
            "bytes": Path(against).stat().st_size,
        },
    }


def agreement(one: Session, other: Session, split: Split) -> float:
    """Share of samples for which both files name the same class."""
    same = [one.scores(x).argmax(1) == other.scores(x).argmax(1) for x, _ in batches(split, BATCH)]
    return float(np.concatenate(same).mean())
