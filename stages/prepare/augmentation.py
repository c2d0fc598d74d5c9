"""Choose the augmentation of training images by what the original learned from them.

An original that is much better on the training samples than on others has learned them by heart;
then augmentation helps. One that generalizes as well has little to gain, and few steps to lose.
Flips are left out if the original does not recognize flipped images, such as digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ltp_pipeline.data.dataset import Split
from ltp_pipeline.data.images.augment import MOVES, Move
from ltp_pipeline.data.loader import iter_batches
from ltp_pipeline.data.preprocessing import compute_input_shape
from ltp_pipeline.results.schema_parts import AugmentationInfo
from ltp_pipeline.stages.train.batches import derive_seed
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.tasks.classification import TOP1, ClassificationTask
from ltp_pipeline.tasks.evaluator import BATCH
from ltp_pipeline.tasks.protocol import EvaluatedBatch

# Least difference of the original's accuracy between training and validation samples.
MIN_GAP = 0.1
MAX_FLIP_DROP = 0.05  # of the original's accuracy on validation samples, half of them flipped
MAX_SAMPLES = 2_000  # training samples on which the original is measured
MIN_SIZE = 16  # pixels of the height and width of an image
IMAGE_CHANNELS = (1, 3, 4)


def apply_augmentation(context: RunContext, original: StateDict) -> RunContext:
    """Return the context with the augmentation that the original calls for.

    The main process measures once; the run directory keeps the choice.

    Args:
        context: The run before any training.
        original: Weights of the original model.
    """
    if context.settings.data.augment != "auto":
        return context
    run_directory = context.run_directory
    if distributed.is_main_process() and run_directory.manifest.augmentation is None:
        info = _choose_moves(context, original)
        run_directory.update_manifest(augmentation=info)
        run_directory.progress.say(f"Note: {info.reason}")
    saved = run_directory.manifest.augmentation
    code = 0 if saved is None else sum(1 << i for i, m in enumerate(MOVES) if m in saved.moves)
    code = round(distributed.broadcast_from_main(float(code)))
    return with_moves(context, tuple(m for i, m in enumerate(MOVES) if code >> i & 1))


def with_moves(context: RunContext, moves: tuple[Move, ...]) -> RunContext:
    """Return the context with shifts and flips of training images."""
    if not moves:
        return context
    return replace(context, data=replace(context.data, train=context.data.train.with_moves(moves)))


def list_notes(context: RunContext) -> list[str]:
    """Return a line on the augmentation if the run has chosen one."""
    info = context.run_directory.manifest.augmentation
    return [] if info is None else [info.reason]


def explain_no_images(context: RunContext) -> str | None:
    """Return why samples are not images of one class; None if they are."""
    task = context.task
    if not isinstance(task, ClassificationTask) or task.metric is not TOP1:
        return "the task is not classification with labels"
    inputs = context.data.train.inputs
    if len(inputs) != 1:
        return "the model has several inputs"
    (source,) = inputs.values()
    shape = compute_input_shape(source.recipe, source.samples.shape)
    if len(shape) != 3 or shape[0] not in IMAGE_CHANNELS:
        return "its input is not an image of one, three or four channels"
    if any(size is None or size < MIN_SIZE for size in shape[1:]):
        return f"images have less than {MIN_SIZE} pixels in height or width"
    return None


def _choose_moves(context: RunContext, original: StateDict) -> AugmentationInfo:
    """Measure the original on training samples and on changed validation samples."""
    obstacle = explain_no_images(context)
    if obstacle is not None:
        return AugmentationInfo(reason=f"training samples are not augmented: {obstacle}")
    metric, val = context.task.metric, context.data.val
    train = context.data.train
    if len(train) > MAX_SAMPLES:
        seed = derive_seed(context.settings.train.seed, "augmentation")
        rows = np.random.default_rng(seed).permutation(len(train))[:MAX_SAMPLES]
        train = train.select(np.sort(rows))
    value = _measure_accuracy(context, original, val)
    gap = metric.compute_drop(_measure_accuracy(context, original, train), value)
    flipped = _measure_accuracy(context, original, val.with_moves(("flip",)))
    flip_drop = metric.compute_drop(value, flipped)
    moves: tuple[Move, ...] = ()
    if gap >= MIN_GAP:
        moves = ("flip", "shift") if flip_drop <= MAX_FLIP_DROP else ("shift",)
    reason = (
        f"training images are augmented by {' and '.join(moves) or 'nothing'}: the original's"
        f" {metric.name} is {metric.format_drop(gap)} better on training samples than on"
        f" validation samples (from {metric.format_drop(MIN_GAP)} on, augmentation helps), and"
        f" flips change it by {metric.format_drop(flip_drop)} (at most"
        f" {metric.format_drop(MAX_FLIP_DROP)} for flips)"
    )
    return AugmentationInfo(moves=moves, gap=gap, flip_drop=flip_drop, reason=reason)


def _measure_accuracy(context: RunContext, state: StateDict, split: Split) -> float:
    """Return the metric on a split, read with the changes that it has."""

    def evaluate() -> Iterator[EvaluatedBatch]:
        seed = derive_seed(context.settings.train.seed, "augmentation")
        for batch in iter_batches(split, BATCH, augment_seed=seed):
            yield EvaluatedBatch(context.compute_outputs(state, batch.inputs), batch, None)

    statistics = context.task.sample_statistics(evaluate(), ())
    return context.task.compute_metric(statistics, split.name).value
