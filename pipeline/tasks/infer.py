"""The tasks there are, and which one a model and its data mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.imitation import DistillationTask
from ltp_pipeline.tasks.supervised import SupervisedTask
from ltp_pipeline.tasks.telling import of_labels

if TYPE_CHECKING:
    from onnx import GraphProto

    from ltp_pipeline.data.dataset import DatasetSplits
    from ltp_pipeline.settings.schema import DistillOutputs, TaskSettings
    from ltp_pipeline.tasks.protocol import Task

__all__ = ["ClassificationTask", "DistillationTask", "SupervisedTask", "find_task"]


def find_task(
    data: DatasetSplits,
    graph: GraphProto,
    shapes: Sequence[tuple[int, ...] | None],
    samples: int,
    settings: TaskSettings,
    imitate: DistillOutputs = "auto",
) -> Task:
    """What the labels ask of the outputs; imitation of the original where there are none.

    `shapes` are those of all outputs for so many `samples`, None for what is no tensor of floating point.
    """
    if data.has_labels and settings.kind != "distillation":
        return of_labels(data, graph, shapes, samples, settings)
    return DistillationTask.of(graph, shapes, samples, imitate, settings.output)
