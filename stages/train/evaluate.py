"""How good a state is, in torch: used for choosing, never reported as the result."""

from functools import partial

import numpy as np

from ltp_pipeline.data.dataset import Split
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict


def evaluate_metric(context: RunContext, state: StateDict, split: Split) -> float:
    """The metric on a split; all processes evaluate together, each its share of the samples where that can be."""
    task, evaluator = context.task, context.evaluator
    if not task.is_per_sample:
        own = (
            evaluator(partial(context.compute_outputs, state), split)[0].value
            if distributed.is_main_process()
            else 0.0
        )
        return distributed.broadcast_from_main(own, context.device)
    mine = np.arange(distributed.rank(), len(split), distributed.get_world_size())
    rows = mine if len(mine) else np.arange(1)  # to know what evidence looks like
    evidence = evaluator.sample_statistics(partial(context.compute_outputs, state), split, rows)[
        : len(mine)
    ]
    return task.compute_metric(
        distributed.all_gather_rows(evidence, context.device), split.name
    ).value
