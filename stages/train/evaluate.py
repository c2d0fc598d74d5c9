"""Evaluate a network in torch. The result chooses between networks and trainings."""

from functools import partial

import numpy as np

from ltp_pipeline.data.dataset import Split
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import Array, StateDict
from ltp_pipeline.tasks.evaluator import Evaluator


def evaluate_metric(context: RunContext, state: StateDict, split: Split) -> float:
    """Return the metric of a network on a split.

    All processes evaluate together, each its part of the samples, if the task allows it.
    """
    return evaluate_samples(context, context.evaluator, state, split)[0]


def evaluate_samples(
    context: RunContext, evaluator: Evaluator, state: StateDict, split: Split
) -> tuple[float, Array | None]:
    """Return metric and statistics of a network on a split.

    All processes evaluate together. Statistics are None in processes other than the main one if
    the task does not count single samples.
    """
    task = context.task
    compute_outputs = partial(context.compute_outputs, state)
    if not task.is_per_sample:
        value = 0.0
        statistics: Array | None = None
        if distributed.is_main_process():
            result, statistics = evaluator(compute_outputs, split)
            value = result.value
        return distributed.broadcast_from_main(value), statistics
    own_rows = np.arange(distributed.get_rank(), len(split), distributed.get_world_size())
    # A process without samples evaluates one, to learn the shape of the statistics.
    rows = own_rows if len(own_rows) else np.arange(1)
    statistics = evaluator.sample_statistics(compute_outputs, split, rows)[: len(own_rows)]
    all_statistics = distributed.all_gather_rows(statistics)
    return task.compute_metric(all_statistics, split.name).value, all_statistics
