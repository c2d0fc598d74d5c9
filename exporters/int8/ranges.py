"""Choose the ranges of activations from their values on samples, by one of three methods.

One pass over the samples serves all methods: it records the extremes of all values of a tensor and
a histogram of a part of them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from onnx import ValueInfoProto

from ltp_pipeline.exporters.files.run_proof import Feeds, open_session
from ltp_pipeline.exporters.int8.layers import SKIP_HINT
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import collect_names
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.system import threads
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.scratch import temporary_folder

NUM_BINS = 2048  # bins of a histogram, on each side of zero
MAX_COUNTED_VALUES = 2**16  # values of a tensor and a batch that are counted in its histogram
PERCENTILE = 99.99  # percent of all values inside a range of that method
NUM_LEVELS = 128  # levels of the entropy method; 255 levels are on both sides of zero
NUM_TRIED_RANGES = 64  # ranges that the entropy method tries
_MIN_PROBABILITY = 1e-12  # of a bin, so that its logarithm exists


class ValueRange(NamedTuple):
    """The smallest and the largest value that 8 bits must hold; zero lies between them."""

    low: float
    high: float


class HistogramObserver:
    """Records the extremes and a histogram of one tensor's values."""

    def __init__(self) -> None:
        self.low = 0.0
        self.high = 0.0
        self.is_finite = True
        self.limit = 0.0  # largest absolute value that the histogram covers
        # Counts of negative and of positive values. Zero is exact in every range.
        self.counts = np.zeros((2, NUM_BINS), np.int64)

    def add_batch(self, values: Array) -> None:
        """Record the values of a batch."""
        if not self.is_finite or not values.size:
            return
        low = float(values.min())
        high = float(values.max())
        if not np.isfinite([low, high]).all():
            self.is_finite = False
            return
        self.low = min(self.low, low)
        self.high = max(self.high, high)
        self._widen_histogram(max(-low, high))
        if not self.limit:
            return
        flat = values.reshape(-1)
        counted = flat[:: -(-flat.size // MAX_COUNTED_VALUES)].astype(np.float64)
        for side, part in enumerate((-counted[counted < 0], counted[counted > 0])):
            bins = np.minimum((part * (NUM_BINS / self.limit)).astype(np.int64), NUM_BINS - 1)
            self.counts[side] += np.bincount(bins, minlength=NUM_BINS)

    def _widen_histogram(self, largest: float) -> None:
        """Double the limit until it covers the largest value; each time two bins become one."""
        if not self.limit:
            self.limit = largest
        while self.limit < largest:
            self.limit *= 2
            merged = self.counts.reshape(2, -1, 2).sum(axis=2)
            self.counts = np.pad(merged, ((0, 0), (0, NUM_BINS // 2)))


def find_min_max_range(observer: HistogramObserver) -> ValueRange:
    """Return the range of all values."""
    return ValueRange(observer.low, observer.high)


def find_percentile_range(observer: HistogramObserver) -> ValueRange:
    """Return a range without the outermost values on each side."""
    max_outside = (100 - PERCENTILE) / 200 * observer.counts.sum()
    limits = []
    for side in observer.counts:
        num_beyond = np.cumsum(side[::-1])[::-1]  # values in a bin or farther from zero
        inside = np.flatnonzero(num_beyond > max_outside)
        limits.append(observer.limit * (inside[-1] + 1) / NUM_BINS if inside.size else 0.0)
    return ValueRange(max(observer.low, -limits[0]), min(observer.high, limits[1]))


def find_entropy_range(observer: HistogramObserver) -> ValueRange:
    """Return the range with the smallest Kullback-Leibler divergence of its values in 8 bits."""
    counts = observer.counts.sum(axis=0).astype(np.float64)
    if not counts.any():
        return find_min_max_range(observer)
    sizes = np.unique(np.linspace(NUM_LEVELS, NUM_BINS, NUM_TRIED_RANGES).astype(np.int64))
    divergences = [_measure_divergence(counts, int(size)) for size in sizes]
    best_size = int(sizes[int(np.argmin(divergences))])
    limit = observer.limit * best_size / NUM_BINS
    return ValueRange(max(observer.low, -limit), min(observer.high, limit))


def _measure_divergence(counts: Array, size: int) -> float:
    """Return the divergence of values in NUM_LEVELS levels from the values themselves."""
    inside = counts[:size].copy()
    levels = np.arange(size) * NUM_LEVELS // size
    is_filled = inside > 0
    level_counts = np.bincount(levels, inside, NUM_LEVELS)
    level_sizes = np.bincount(levels, is_filled, NUM_LEVELS)
    spread = level_counts[levels] / np.maximum(level_sizes[levels], 1)
    spread = np.where(is_filled, spread, 0.0)
    inside[-1] += counts[size:].sum()
    p = inside / inside.sum()
    q = spread / max(spread.sum(), 1.0)
    is_possible = p > 0
    ratio = p[is_possible] / np.maximum(q[is_possible], _MIN_PROBABILITY)
    return float(np.sum(p[is_possible] * np.log(ratio)))


MIN_MAX = "min-max"
RANGE_METHODS: Mapping[str, Callable[[HistogramObserver], ValueRange]] = {
    MIN_MAX: find_min_max_range,
    "percentile": find_percentile_range,
    "entropy": find_entropy_range,
}


def observe_values(
    model: OnnxModel, names: Collection[str], batches: Iterable[Feeds]
) -> dict[str, HistogramObserver]:
    """Run a model on batches and record values of its graph.

    Returns:
        Observers by name, without values that are not float32.
    """
    outer_names = collect_names((*model.graph.input, *model.graph.output))
    proto = copy_proto(model.proto)
    proto.graph.output.extend(
        ValueInfoProto(name=name) for name in names if name not in outer_names
    )
    observers: dict[str, HistogramObserver] = {}
    with temporary_folder("quantize") as folder:
        path = folder / "observed.onnx"
        write_model(OnnxModel(proto, model.weights), path)
        session = open_session(path, threads=threads.current_threads(), hint=SKIP_HINT)
        output_names = [output.name for output in session.get_outputs()]
        for feeds in batches:
            outputs = session.run(None, dict(feeds))
            values = {**dict(zip(output_names, outputs, strict=True)), **feeds}
            for name in names:
                value = values.get(name)
                if isinstance(value, np.ndarray) and value.dtype == np.float32:
                    observers.setdefault(name, HistogramObserver()).add_batch(value)
    return observers
