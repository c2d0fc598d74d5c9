"""Ranges of activations: what a model's tensors hold on samples, and three ways to choose a range from that.

All three come from one pass over the samples: extremes of all values, and a histogram of a part of them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx import ValueInfoProto

from ltp_pipeline.errors import ExportFailed, summarize_error
from ltp_pipeline.exporters.int8.calibration import Feeds
from ltp_pipeline.exporters.int8.layers import SKIP_HINT
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.system import threads
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.scratch import temporary_folder

NUM_BINS = 2048  # of |x|, on each side of zero
MAX_COUNTED_VALUES = 2**16  # values of a tensor and a batch that go into its histogram
PERCENTILE = 99.99  # of all values lie inside the range
NUM_LEVELS = 128  # that entropy compares with: 255 over both sides of zero
NUM_TRIED_RANGES = 64  # ranges that entropy tries


class ValueRange(NamedTuple):
    """The smallest and the largest value that 8 bits have to hold; zero lies between them."""

    low: float
    high: float


class HistogramObserver:
    """The values of one tensor."""

    def __init__(self) -> None:
        self.low, self.high, self.is_finite = 0.0, 0.0, True
        self.limit = 0.0  # of the histogram, which begins at zero on both sides
        self.counts = np.zeros(
            (2, NUM_BINS), np.int64
        )  # of values below zero and above; zero itself is always exact

    def add_batch(self, values: Array) -> None:
        """Take in a batch."""
        if not self.is_finite or not values.size:
            return
        low, high = float(values.min()), float(values.max())
        if not np.isfinite([low, high]).all():
            self.is_finite = False
            return
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._widen_histogram(max(-low, high))
        if self.limit:
            part = values.reshape(-1)
            part = part[:: -(-part.size // MAX_COUNTED_VALUES)].astype(np.float64)
            for side, found in enumerate((-part[part < 0], part[part > 0])):
                places = np.minimum(
                    (found * (NUM_BINS / self.limit)).astype(np.int64), NUM_BINS - 1
                )
                self.counts[side] += np.bincount(places, minlength=NUM_BINS)

    def _widen_histogram(self, largest: float) -> None:
        """Double the limit until it holds the largest value; two bins become one each time."""
        if not self.limit:
            self.limit = largest
        while self.limit < largest:
            self.limit *= 2
            self.counts = np.pad(
                self.counts.reshape(2, -1, 2).sum(axis=2), ((0, 0), (0, NUM_BINS // 2))
            )

    def clip_range(self, limit: float) -> ValueRange:
        """All values, but none further from zero than this."""
        return ValueRange(max(self.low, -limit), min(self.high, limit))


def find_min_max_range(seen: HistogramObserver) -> ValueRange:
    """All values."""
    return ValueRange(seen.low, seen.high)


def find_percentile_range(seen: HistogramObserver) -> ValueRange:
    """All but the outermost values on each side."""
    total, outside = seen.counts.sum(), (100 - PERCENTILE) / 200
    limits = []
    for side in seen.counts:
        beyond = np.cumsum(side[::-1])[::-1]  # values in this bin or further out
        inside = np.flatnonzero(beyond > outside * total)
        limits.append(seen.limit * (inside[-1] + 1) / NUM_BINS if inside.size else 0.0)
    return ValueRange(max(seen.low, -limits[0]), min(seen.high, limits[1]))


def find_entropy_range(seen: HistogramObserver) -> ValueRange:
    """The range whose values in 8 bits are distributed most like all values are (Kullback-Leibler)."""
    whole = seen.counts.sum(axis=0).astype(np.float64)
    if not whole.any():
        return find_min_max_range(seen)
    sizes = np.unique(np.linspace(NUM_LEVELS, NUM_BINS, NUM_TRIED_RANGES).astype(np.int64))
    losses = [_measure_divergence(whole, int(size)) for size in sizes]
    return seen.clip_range(seen.limit * int(sizes[int(np.argmin(losses))]) / NUM_BINS)


def _measure_divergence(whole: Array, size: int) -> float:
    """How much is lost where only the first bins are kept, in LEVELS steps, and the rest is clipped."""
    kept = whole[:size].copy()
    groups = np.arange(size) * NUM_LEVELS // size
    filled = kept > 0
    sums, members = np.bincount(groups, kept, NUM_LEVELS), np.bincount(groups, filled, NUM_LEVELS)
    spread = np.where(filled, sums[groups] / np.maximum(members[groups], 1), 0.0)
    kept[-1] += whole[size:].sum()
    p, q = kept / kept.sum(), spread / max(spread.sum(), 1.0)
    both = p > 0
    return float(np.sum(p[both] * np.log(p[both] / np.maximum(q[both], 1e-12))))


RANGE_METHODS: Mapping[str, Callable[[HistogramObserver], ValueRange]] = {
    "min-max": find_min_max_range,
    "percentile": find_percentile_range,
    "entropy": find_entropy_range,
}


def observe_values(
    model: OnnxModel, names: Collection[str], batches: Iterable[Feeds]
) -> dict[str, HistogramObserver]:
    """Run a model on batches and look at these values; those that turn out not to be float32 are left out."""
    outside = {value.name for value in (*model.graph.input, *model.graph.output)}
    watched = [name for name in names if name not in outside]
    proto = copy_proto(model.proto)
    proto.graph.output.extend(ValueInfoProto(name=name) for name in watched)
    seen: dict[str, HistogramObserver] = {}
    with temporary_folder("quantize") as folder:
        path = folder / "watched.onnx"
        write_model(OnnxModel(proto, model.weights), path)
        session = _session(path)
        outputs = [output.name for output in session.get_outputs()]
        for feeds in batches:
            found = {**dict(zip(outputs, session.run(None, dict(feeds)), strict=True)), **feeds}
            for name in names:
                value = found.get(name)
                if isinstance(value, np.ndarray) and value.dtype == np.float32:
                    seen.setdefault(name, HistogramObserver()).add_batch(value)
    return seen


def _session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads.current_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 (onnxruntime's errors have no common root)
        reason = summarize_error(error)
        raise ExportFailed(
            f"onnxruntime cannot watch the activations: {reason}", SKIP_HINT
        ) from None
