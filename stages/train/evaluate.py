"""How good a state is, in torch: used for choosing, never reported as the result."""

import numpy as np

from ltp_pipeline import ranks
from ltp_pipeline.data import Split
from ltp_pipeline.records import State
from ltp_pipeline.stages.train.job import Job


def accuracy(job: Job, state: State, split: Split) -> float:
    """The metric on a split; all processes evaluate together, each its share of the samples."""
    rows = np.arange(ranks.rank(), len(split), ranks.world())
    total = 0.0
    if len(rows):
        _, each = job.evaluator(lambda inputs: job.outputs(state, inputs), split, rows)
        total = float(each.sum())
    return max(ranks.total(total, job.device) / len(split), 0.0)
