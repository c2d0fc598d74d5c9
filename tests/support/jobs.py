"""Jobs of training, changed for a test."""

from dataclasses import replace
from functools import partial

from ltp_pipeline.stages.finetune import Masked
from ltp_pipeline.stages.train.job import Job


def plain(job: Job) -> partial[Masked]:
    """A phase that only trains."""
    return partial(Masked, job=job, masks={}, name="finetune", key="finetune")


def with_train(job: Job, **train: object) -> Job:
    """The same job with other settings of training."""
    settings = job.settings.model_copy(update={"train": job.settings.train.model_copy(update=train)})
    return replace(job, settings=settings)


def compressed(job: Job, target: float) -> Job:
    """The same job with a target."""
    budget = job.settings.budget.model_copy(update={"target_compression": target})
    return replace(job, settings=job.settings.model_copy(update={"budget": budget}))
