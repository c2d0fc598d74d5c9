"""What all training stages share: the loop, its checkpoints, evaluation, statistics, several processes."""

from ltp_pipeline.stages.train.job import Job, pick_device
from ltp_pipeline.stages.train.loop import train

__all__ = ["Job", "pick_device", "train"]
