"""Train one row of the study: a network, a cell, a method, a learning rate and a seed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import datasets
from benchmarks.contexts import final_numbers, prepared
from benchmarks.study.methods import MagnitudeMethod, Task, clear_moments, epochs_of, make_method
from benchmarks.study.networks import MULTIPLY_ADDS, NETWORKS, WEIGHTS, dense_model
from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import finetune, weight_units
from ltp_pipeline.stages.learn_thresholds import _scale_free_weights
from ltp_pipeline.stages.learn_thresholds.masks import min_kept_counts
from ltp_pipeline.stages.learn_thresholds.phase import ThresholdLearningPhase
from ltp_pipeline.stages.multiply_adds import count_multiply_adds, count_uses
from ltp_pipeline.stages.prune import apply_masks, count_nonzeros, nonzero_masks
from ltp_pipeline.stages.train.context import PrunedNetwork, RunContext, to_device
from ltp_pipeline.stages.train.loop import train
from ltp_pipeline.stages.train.phase import StepPosition
from ltp_pipeline.stages.train.statistics import refresh_statistics
from ltp_pipeline.system.arrays import StateDict

EPOCHS = 12


class StudyPhase(ThresholdLearningPhase):
    """Threshold learning without a trail."""

    def after_backward(self, position: StepPosition) -> None:
        """Let the method move its thresholds."""
        self.position = position
        self.method.after_backward(position)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Clear moments as the product does, unless the method trains pruned weights too."""
        if isinstance(self.method, MagnitudeMethod):
            if self.method.clears_moments:
                clear_moments(optimizer, self.method.layer_weights)
            self.method.after_step(self.position)
        else:
            super().after_step(optimizer)

    def end_epoch(self, epoch: int) -> dict[str, float]:  # noqa: ARG002 - no trail
        """Write nothing."""
        return {}


def measure(plan: Mapping[str, Any], folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Train a row of the plan.

    Args:
        plan: network, cost, fraction, method, lr, units and seed.
        folders: Folders of the data by source.
        cache: Folder of dense networks and data.

    Returns:
        Accuracies on test and validation split, what is left, and seconds.
    """
    network = NETWORKS[plan["network"]]
    model = dense_model(plan["network"], plan["seed"], folders, cache)
    data = datasets.data_settings(network.source, network.images, folders, cache)
    is_own_loop = plan["method"] == "own-loop"
    settings = Settings.model_validate(
        {
            "data": {**data, "augment": is_own_loop},
            "train": {
                "seed": plan["seed"],
                "lr": plan["lr"],
                "distillation_weight": 0.0 if is_own_loop else 0.5,
                "epochs": EPOCHS,
                "finetune_epochs": 0,
            },
            "budget": {"target_compression": 1 / plan["fraction"]},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        context, state = prepared(model, settings, Path(folder))
        if not plan["units"]:
            state = weight_units.from_units(context.network.units, state)
            context = replace(context, network=replace(context.network, units=()))
        begun = time.monotonic()
        try:
            final = _train(context, state, plan)
        except TrainingFailed as error:
            return {"test": None, "val": None, "failed": str(error)}
        seconds = round(time.monotonic() - begun, 1)
        uses = _count_uses(context, state)
        layers = {layer.name: layer.elements for layer in context.network.layer_weights}
        left = count_multiply_adds(uses, count_nonzeros(context.network, final))
        return {
            **final_numbers(context, final),
            "multiply_adds_left": left / count_multiply_adds(uses, layers),
            "aggressiveness": context.resolved.aggressiveness,
            "seconds": seconds,
        }


def _train(context: RunContext, state: StateDict, plan: Mapping[str, Any]) -> StateDict:
    """Return the tensors of the pruned and fine-tuned network."""
    name = plan["method"]
    epochs = epochs_of(name, EPOCHS, context.resolved.aggressiveness)
    if name == "dense":
        return finetune.run(context, PrunedNetwork(dict(state), {}, 0, {}), EPOCHS).state
    costs: Mapping[str, int] = dict.fromkeys((k.name for k in context.network.layer_weights), 1)
    if plan["cost"] == MULTIPLY_ADDS:
        costs = _count_uses(context, state)

    def make_task(tensors: Mapping[str, Tensor]) -> Task:
        prunable = context.network.prunable_weights
        weights = {layer.name: tensors[layer.name] for layer in prunable}
        nonzeros = {n: int(w.count_nonzero()) for n, w in weights.items()}
        lowest = min_kept_counts(prunable, nonzeros, context.settings.method)
        scaled = frozenset(weights) - _scale_free_weights(context.network)
        return Task(
            weights,
            lowest,
            {n: costs[n] for n in weights},
            plan["fraction"],
            scaled,
            context.resolved.aggressiveness,
            plan["cost"] == WEIGHTS,
        )

    if epochs == 0:
        pruned = make_method(name, make_task(state)).pruned_weights(1.0)
    else:
        phases = []

        def begin(tensors: Mapping[str, Tensor]) -> StudyPhase:
            phases.append(StudyPhase(tensors, context, make_method(name, make_task(tensors))))
            return phases[0]

        state = train(context, dict(state), begin, epochs, after=EPOCHS - epochs)
        pruned = phases[0].method.pruned_weights(1.0)
    state = {**state, **{n: v.detach() for n, v in pruned.items()}}
    masks = nonzero_masks(context.network, state)
    state = refresh_statistics(context, apply_masks(state, masks))
    start = PrunedNetwork(state, masks, 0, {})
    return finetune.run(context, start, EPOCHS - epochs, before=epochs).state


def _count_uses(context: RunContext, state: StateDict) -> dict[str, int]:
    """Return the uses of a weight of each layer in one sample."""
    batch = context.data.train.read_first(2).inputs
    return count_uses(context.network, state, to_device(batch, context.device))
