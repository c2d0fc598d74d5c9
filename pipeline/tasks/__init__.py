"""The tasks there are, and which one a model and its data mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ltp_pipeline.tasks.classification import Classification
from ltp_pipeline.tasks.imitation import Imitation

if TYPE_CHECKING:
    from onnx import GraphProto

    from ltp_pipeline.config import Imitate
    from ltp_pipeline.data import Data
    from ltp_pipeline.task import Task

__all__ = ["Classification", "Imitation", "find_task"]


def find_task(
    data: Data,
    graph: GraphProto,
    shapes: Sequence[tuple[int, ...] | None],
    samples: int,
    imitate: Imitate = "auto",
) -> Task:
    """Classification where the data have labels, imitation of the original where not.

    `shapes` are those of all outputs for so many `samples`, None for what is no tensor of floating point.
    """
    if data.classes is None:
        return Imitation.of(graph, shapes, samples, imitate)
    return Classification.of(graph, shapes, samples, data)
