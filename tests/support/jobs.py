"""Jobs of training, changed for a test."""

from dataclasses import replace
from functools import partial

from ltp_pipeline.stages.finetune import MaskedTrainingPhase
from ltp_pipeline.stages.train.job import RunContext


def plain(job: RunContext) -> partial[MaskedTrainingPhase]:
    """A phase that only trains."""
    return partial(MaskedTrainingPhase, context=job, masks={}, name="finetune", key="finetune")


def with_train(job: RunContext, **train: object) -> RunContext:
    """The same job with other settings of training."""
    settings = job.settings.model_copy(
        update={"train": job.settings.train.model_copy(update=train)}
    )
    return replace(job, settings=settings)


def compressed(job: RunContext, target: float) -> RunContext:
    """The same job with a target."""
    budget = job.settings.budget.model_copy(update={"target_compression": target})
    return replace(job, settings=job.settings.model_copy(update={"budget": budget}))
