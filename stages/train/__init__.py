"""Training: the one loop, its phases and checkpoints, evaluation, and several processes.

- context.py: RunContext, what all stages of a run share
- loop.py: the training loop; phase.py: the protocol of what differs between kinds of training
- batches.py: which samples a step sees
- optimizer.py: SGD or AdamW, with their defaults
- checkpoint.py: resume a phase exactly where it stopped
- evaluate.py, statistics.py: metric and running statistics of a network
- distributed.py: several processes that train one network
- memory.py, slowdown.py: memory between steps, and steps that become slow
"""

from ltp_pipeline.stages.train.context import RunContext, pick_device
from ltp_pipeline.stages.train.loop import train

__all__ = ["RunContext", "pick_device", "train"]
