"""Jobs of training, changed for a test."""

from dataclasses import replace
from functools import partial

from ltp_pipeline.stages.finetune import MaskedTrainingPhase
from ltp_pipeline.stages.train.context import RunContext


def plain_phase(context: RunContext) -> partial[MaskedTrainingPhase]:
    """Return a phase that trains without pruning."""
    return partial(MaskedTrainingPhase, context=context, masks={}, name="finetune", key="finetune")


def with_train(context: RunContext, **train: object) -> RunContext:
    """Return the context with other training settings."""
    settings = context.settings.model_copy(
        update={"train": context.settings.train.model_copy(update=train)}
    )
    return replace(context, settings=settings)


def with_target(context: RunContext, target: float) -> RunContext:
    """Return the context with a target compression."""
    budget = context.settings.budget.model_copy(update={"target_compression": target})
    return replace(context, settings=context.settings.model_copy(update={"budget": budget}))
