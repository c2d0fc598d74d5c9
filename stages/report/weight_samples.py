"""What the pictures of single layers show: weights before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.results import schema_parts as parts

if TYPE_CHECKING:
    from ltp_pipeline.graph.tensors import Weights
    from ltp_pipeline.stages.import_model.network import Network

HISTOGRAMS = 6
BINS = 60
SCATTER_POINTS = 3000


@dataclass(frozen=True)
class WeightPictures:
    """What the pictures of single layers need."""

    histograms: tuple[parts.WeightHistogram, ...]
    scatter: parts.WeightScatter | None


def picture_weights(
    network: Network, after: Weights, thresholds: Mapping[str, float]
) -> WeightPictures:
    """Histograms of the largest layers, and the paper's scatter of w² for the largest of them."""
    largest = sorted(network.prunable_weights, key=lambda k: -k.elements)[:HISTOGRAMS]
    before = {k.name: network.file.model.get_array(k.name) for k in largest}
    histograms = []
    for kernel in largest:
        old, new = (np.abs(np.asarray(x[kernel.name], np.float64)).ravel() for x in (before, after))
        edges = np.linspace(0, max(old.max(), new.max(), 1e-12), BINS + 1)
        histograms.append(
            parts.WeightHistogram(
                name=kernel.name,
                threshold=thresholds.get(kernel.name),
                edges=tuple(edges.tolist()),
                before=tuple(np.histogram(old, edges)[0].tolist()),
                after=tuple(np.histogram(new[new > 0], edges)[0].tolist()),
            )
        )
    if not largest:
        return WeightPictures((), None)
    name = largest[0].name
    rows = np.linspace(0, largest[0].elements - 1, min(SCATTER_POINTS, largest[0].elements)).astype(
        np.int64
    )
    squares = [
        tuple((np.asarray(x[name], np.float64).ravel()[rows] ** 2).tolist())
        for x in (before, after)
    ]
    scatter = parts.WeightScatter(
        name=name, threshold=thresholds.get(name), before=squares[0], after=squares[1]
    )
    return WeightPictures(tuple(histograms), scatter)
