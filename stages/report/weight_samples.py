"""Sample the weights of the largest layers before and after pruning, for plots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.results.schema_parts import WeightHistogram, WeightScatter

if TYPE_CHECKING:
    from ltp_pipeline.graph.tensors import Weights
    from ltp_pipeline.stages.import_model.network import Network
    from ltp_pipeline.system.arrays import Array

NUM_HISTOGRAMS = 6
NUM_BINS = 60
MAX_SCATTER_POINTS = 3000


@dataclass(frozen=True)
class WeightSamples:
    """Histograms of the largest layers, and single weights of the largest one."""

    histograms: tuple[WeightHistogram, ...]
    scatter: WeightScatter | None


def sample_weights(
    network: Network, pruned: Weights, thresholds: Mapping[str, float]
) -> WeightSamples:
    """Sample the weights of the largest layers.

    Args:
        network: Network with the original weights.
        pruned: Weights after pruning, by name.
        thresholds: Thresholds on w², by layer.

    Returns:
        Samples; empty if no layer is prunable.
    """
    layers = sorted(network.prunable_weights, key=lambda layer: -layer.elements)[:NUM_HISTOGRAMS]
    histograms = []
    scatter = None
    for layer in layers:
        name = layer.name
        before = np.asarray(network.file.model.get_array(name), np.float64).ravel()
        after = np.asarray(pruned[name], np.float64).ravel()
        threshold = thresholds.get(name)
        histograms.append(_count_weights(name, before, after, threshold))
        if scatter is None:
            scatter = _select_weights(name, before, after, threshold)
    return WeightSamples(tuple(histograms), scatter)


def _count_weights(
    name: str, before: Array, after: Array, threshold: float | None
) -> WeightHistogram:
    """Return histograms of |w|; pruned weights are not counted after pruning."""
    before = np.abs(before)
    after = np.abs(after)
    edges = np.linspace(0, max(before.max(), after.max(), 1e-12), NUM_BINS + 1)
    return WeightHistogram(
        name=name,
        threshold=threshold,
        edges=tuple(edges.tolist()),
        before=tuple(np.histogram(before, edges)[0].tolist()),
        after=tuple(np.histogram(after[after > 0], edges)[0].tolist()),
    )


def _select_weights(
    name: str, before: Array, after: Array, threshold: float | None
) -> WeightScatter:
    """Return w² of evenly spaced weights of a layer."""
    count = min(MAX_SCATTER_POINTS, before.size)
    places = np.linspace(0, before.size - 1, count).astype(np.int64)
    return WeightScatter(
        name=name,
        threshold=threshold,
        before=tuple((before[places] ** 2).tolist()),
        after=tuple((after[places] ** 2).tolist()),
    )
