"""Ranges of activations: what a model's tensors hold on samples, and three ways to choose a range from that.

All three come from one pass over the samples: extremes of all values, and a histogram of a part of them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx import ValueInfoProto

from ltp_pipeline.errors import ExportFailed, first_line
from ltp_pipeline.exporters.int8.calibration import Feeds
from ltp_pipeline.exporters.int8.layers import LEAVE
from ltp_pipeline.graph.model import OnnxModel, copy_of
from ltp_pipeline.graph.storage import write
from ltp_pipeline.system import threads
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.scratch import scratch_folder

BINS = 2048  # of |x|, on each side of zero
MOST_COUNTED = 2**16  # values of a tensor and a batch that go into its histogram
PERCENTILE = 99.99  # of all values lie inside the range
LEVELS = 128  # that entropy compares with: 255 over both sides of zero
STEPS = 64  # ranges that entropy tries


class Range(NamedTuple):
    """The smallest and the largest value that 8 bits have to hold; zero lies between them."""

    low: float
    high: float


class HistogramObserver:
    """The values of one tensor."""

    def __init__(self) -> None:
        self.low, self.high, self.finite = 0.0, 0.0, True
        self.limit = 0.0  # of the histogram, which begins at zero on both sides
        self.counts = np.zeros(
            (2, BINS), np.int64
        )  # of values below zero and above; zero itself is always exact

    def add(self, values: Array) -> None:
        """Take in a batch."""
        if not self.finite or not values.size:
            return
        low, high = float(values.min()), float(values.max())
        if not np.isfinite([low, high]).all():
            self.finite = False
            return
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._widen(max(-low, high))
        if self.limit:
            part = values.reshape(-1)
            part = part[:: -(-part.size // MOST_COUNTED)].astype(np.float64)
            for side, found in enumerate((-part[part < 0], part[part > 0])):
                places = np.minimum((found * (BINS / self.limit)).astype(np.int64), BINS - 1)
                self.counts[side] += np.bincount(places, minlength=BINS)

    def _widen(self, largest: float) -> None:
        """Double the limit until it holds the largest value; two bins become one each time."""
        if not self.limit:
            self.limit = largest
        while self.limit < largest:
            self.limit *= 2
            self.counts = np.pad(
                self.counts.reshape(2, -1, 2).sum(axis=2), ((0, 0), (0, BINS // 2))
            )

    def clipped(self, limit: float) -> Range:
        """All values, but none further from zero than this."""
        return Range(max(self.low, -limit), min(self.high, limit))


def min_max(seen: HistogramObserver) -> Range:
    """All values."""
    return Range(seen.low, seen.high)


def percentile(seen: HistogramObserver) -> Range:
    """All but the outermost values on each side."""
    total, outside = seen.counts.sum(), (100 - PERCENTILE) / 200
    limits = []
    for side in seen.counts:
        beyond = np.cumsum(side[::-1])[::-1]  # values in this bin or further out
        inside = np.flatnonzero(beyond > outside * total)
        limits.append(seen.limit * (inside[-1] + 1) / BINS if inside.size else 0.0)
    return Range(max(seen.low, -limits[0]), min(seen.high, limits[1]))


def entropy(seen: HistogramObserver) -> Range:
    """The range whose values in 8 bits are distributed most like all values are (Kullback-Leibler)."""
    whole = seen.counts.sum(axis=0).astype(np.float64)
    if not whole.any():
        return min_max(seen)
    sizes = np.unique(np.linspace(LEVELS, BINS, STEPS).astype(np.int64))
    losses = [_divergence(whole, int(size)) for size in sizes]
    return seen.clipped(seen.limit * int(sizes[int(np.argmin(losses))]) / BINS)


def _divergence(whole: Array, size: int) -> float:
    """How much is lost where only the first bins are kept, in LEVELS steps, and the rest is clipped."""
    kept = whole[:size].copy()
    groups = np.arange(size) * LEVELS // size
    filled = kept > 0
    sums, members = np.bincount(groups, kept, LEVELS), np.bincount(groups, filled, LEVELS)
    spread = np.where(filled, sums[groups] / np.maximum(members[groups], 1), 0.0)
    kept[-1] += whole[size:].sum()
    p, q = kept / kept.sum(), spread / max(spread.sum(), 1.0)
    both = p > 0
    return float(np.sum(p[both] * np.log(p[both] / np.maximum(q[both], 1e-12))))


METHODS: Mapping[str, Callable[[HistogramObserver], Range]] = {
    "min-max": min_max,
    "percentile": percentile,
    "entropy": entropy,
}


def observe(
    model: OnnxModel, names: Collection[str], batches: Iterable[Feeds]
) -> dict[str, HistogramObserver]:
    """Run a model on batches and look at these values; those that turn out not to be float32 are left out."""
    outside = {value.name for value in (*model.graph.input, *model.graph.output)}
    watched = [name for name in names if name not in outside]
    proto = copy_of(model.proto)
    proto.graph.output.extend(ValueInfoProto(name=name) for name in watched)
    seen: dict[str, HistogramObserver] = {}
    with scratch_folder("quantize") as folder:
        path = folder / "watched.onnx"
        write(OnnxModel(proto, model.weights), path)
        session = _session(path)
        outputs = [output.name for output in session.get_outputs()]
        for feeds in batches:
            found = {**dict(zip(outputs, session.run(None, dict(feeds)), strict=True)), **feeds}
            for name in names:
                value = found.get(name)
                if isinstance(value, np.ndarray) and value.dtype == np.float32:
                    seen.setdefault(name, HistogramObserver()).add(value)
    return seen


def _session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads.current()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 (onnxruntime's errors have no common root)
        reason = first_line(error)
        raise ExportFailed(f"onnxruntime cannot watch the activations: {reason}", LEAVE) from None
