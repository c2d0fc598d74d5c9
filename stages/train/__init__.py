"""What all training stages share: the loop, its checkpoints, evaluation, statistics, several processes."""

from ltp_pipeline.stages.train.job import RunContext, pick_device
from ltp_pipeline.stages.train.loop import train

__all__ = ["RunContext", "pick_device", "train"]
