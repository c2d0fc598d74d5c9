"""How good a state is, in torch: used for choosing, never reported as the result."""

from functools import partial

import numpy as np

from ltp_pipeline import ranks
from ltp_pipeline.data import Split
from ltp_pipeline.records import State
from ltp_pipeline.stages.train.job import Job


def accuracy(job: Job, state: State, split: Split) -> float:
    """The metric on a split; all processes evaluate together, each its share of the samples where that can be."""
    task, evaluator = job.task, job.evaluator
    if not task.is_by_sample:
        own = evaluator(partial(job.outputs, state), split)[0].value if ranks.is_leader() else 0.0
        return ranks.from_leader(own, job.device)
    mine = np.arange(ranks.rank(), len(split), ranks.world())
    rows = mine if len(mine) else np.arange(1)  # to know what evidence looks like
    evidence = evaluator.evidence(partial(job.outputs, state), split, rows)[: len(mine)]
    return task.accuracy(ranks.gathered(evidence, job.device), split.name).value
