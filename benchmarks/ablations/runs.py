"""Measure a run of an ablation: prune the dense network and observe every epoch."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import ltp_pipeline
from benchmarks import datasets, matrix
from benchmarks.ablations import plans
from benchmarks.ablations.plans import CELL, LAYER, Plan
from benchmarks.contexts import final_numbers, learn_entry, prepared
from ltp_pipeline.data.dataset import Split
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import select_entry
from ltp_pipeline.stages.learn_thresholds import make_pruning_method
from ltp_pipeline.stages.learn_thresholds.method import PruningMethod
from ltp_pipeline.stages.learn_thresholds.phase import ThresholdLearningPhase
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.system.arrays import StateDict

Tensors = Mapping[str, Tensor]

# Setting of method.weight_gradient by the number of its equation in the paper.
WEIGHT_GRADIENTS = {"4": "approximate", "20": "clamped", "10": "exact"}

WATCHED_SAMPLES = 1_000
POINTS = 1_000  # points of the scatter plot
BINS = np.linspace(0, 3, 61)  # bounds of the bins of |w| / √τ


def measure_run(plan: Plan, folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Return what was measured while a network was pruned, or the accuracies of a dense network."""
    cell = matrix.CELLS[CELL]
    model = matrix.load_dense(CELL, plan["seed"], folders, cache)
    data = datasets.data_settings(cell.source, cell.pruned_with, folders, cache)
    network, _ = ltp_pipeline.import_model(model)
    elements = sum(layer.elements for layer in network.layer_weights)
    with tempfile.TemporaryDirectory() as scratch:
        if plan["mode"] == "dense":
            context, state = prepared(model, Settings.model_validate({"data": data}), Path(scratch))
            return {
                **final_numbers(context, state),
                "elements": elements,
                "train_samples": len(context.data.train),
            }
        context, state = prepared(model, make_settings(plan, elements, data), Path(scratch))
        return prune_network(context, state, is_drawn=plan in plans.iter_scatter_runs())


def make_settings(plan: Plan, elements: int, data: Mapping[str, Any]) -> Settings:
    """Return the settings of a plan.

    Args:
        plan: A run of plans.py.
        elements: Number of elements of all layer weights.
        data: Settings of [data].
    """
    settings = {
        "data": data,
        "train": {key: plan[key] for key in ("epochs", "finetune_epochs", "lr", "seed")},
    }
    if plan["mode"] == "budget":
        budget = {"target_compression": plan["compression"]}
        return Settings.model_validate({**settings, "budget": budget})
    method = {key: plan[key] for key in ("threshold_lr_ratio", "t0")}
    method["regularizer"] = plan["regulariser"]
    method["weight_gradient"] = WEIGHT_GRADIENTS[plan["weight_gradient"]]
    method["lambda"] = plan["l2"] if plan["regulariser"] == "l2" else plan["pull"] / elements
    return Settings.model_validate({**settings, "method": method})


def prune_network(context: RunContext, state: StateDict, is_drawn: bool) -> dict[str, Any]:
    """Learn thresholds, prune and fine-tune.

    Args:
        context: The run.
        state: Tensors of the dense network.
        is_drawn: Save weights for the scatter plot.

    Returns:
        Accuracies, figures of each epoch, and the weights relative to their thresholds.
    """
    before = {layer.name: state[layer.name] for layer in context.network.prunable_weights}
    phases: list[ObservedPhase] = []

    def begin(tensors: Tensors) -> ObservedPhase:
        method = make_pruning_method(
            context.network, tensors, context.settings, context.resolved.aggressiveness
        )
        phases.append(ObservedPhase(tensors, context, method))
        return phases[-1]

    entry = learn_entry(context, state, begin)
    results = final_numbers(context, select_entry.finish_entry(context, entry).state)
    (phase,) = phases
    method = phase.method
    thresholds = method.tau.detach().clamp(min=1e-30).tolist()
    taus = dict(zip(method.layer_weights, thresholds, strict=True))
    after = {name: weights.detach() for name, weights in method.layer_weights.items()}
    return {
        **results,
        "before": {"mean_square": float(before[LAYER].square().mean())},
        "epochs_seen": _round_values(phase.epochs),
        **describe_weights(before, after, taus, is_drawn),
    }


class ObservedPhase(ThresholdLearningPhase):
    """A learning phase that collects the figures of each epoch."""

    def __init__(self, tensors: Tensors, context: RunContext, method: PruningMethod) -> None:
        super().__init__(tensors, context, method)
        self.epochs: list[dict[str, float]] = []

    def end_epoch(self, epoch: int) -> dict[str, float]:
        """Evaluate the network as it is trained, in addition to the hard-pruned one."""
        figures = super().end_epoch(epoch)
        with torch.no_grad():
            soft = {**self.tensors, **self.method.effective_weights()}
        samples = take_first(self.context.data.train, WATCHED_SAMPLES)
        self.epochs.append(
            {
                "epoch": epoch + 1,
                "kept": 1 / figures["compression"],
                "val": figures["val_accuracy"],
                "train": evaluate_metric(self.context, soft, samples),
                "mean_square": float(self.method.layer_weights[LAYER].detach().square().mean()),
            }
        )
        return figures


def take_first(split: Split, count: int) -> Split:
    """Return the first samples of a split."""
    return Split(split.name, split.inputs, split.targets, split.rows[:count])


def describe_weights(
    before: Tensors, after: Tensors, taus: Mapping[str, float], is_drawn: bool
) -> dict[str, Any]:
    """Describe the weights of all layers together, and those of one layer.

    Weights of all layers are in units of √τ of their layer.

    Args:
        before: Weights of the dense network, by layer.
        after: Weights after learning.
        taus: Threshold on w² of each layer.
        is_drawn: Include weights for the scatter plot.
    """
    units = {name: tau**0.5 for name, tau in taus.items()}
    all_before = torch.cat([before[name].flatten() / unit for name, unit in units.items()])
    all_after = torch.cat([after[name].flatten() / unit for name, unit in units.items()])
    return {
        "kernels": describe_layer(all_before, all_after, 1.0, is_drawn),
        "layer": describe_layer(before[LAYER], after[LAYER], taus[LAYER], is_drawn),
    }


def describe_layer(before: Tensor, after: Tensor, tau: float, is_drawn: bool) -> dict[str, Any]:
    """Return how weights are distributed around their threshold and how many crossed it.

    Args:
        before: Weights of the dense network.
        after: Weights after learning.
        tau: Threshold on w².
        is_drawn: Include some of the weights for the scatter plot.
    """
    was_kept, is_kept = before.square() > tau, after.square() > tau
    counts = np.histogram((after.abs().flatten() / tau**0.5).numpy(), BINS)[0]
    figures: dict[str, Any] = {
        "tau": tau,
        "kept": float(is_kept.float().mean()),
        "came": _fraction(~was_kept & is_kept, is_kept),
        "went": _fraction(was_kept & ~is_kept, ~is_kept),
        "about_threshold": " ".join(map(str, counts)),
    }
    if is_drawn:
        chosen = np.sort(np.random.default_rng(0).permutation(before.numel())[:POINTS])
        figures["before"] = _format_line(before.flatten().numpy()[chosen])
        figures["after"] = _format_line(after.flatten().numpy()[chosen])
    return figures


def _fraction(part: Tensor, total: Tensor) -> float:
    """Return the number of true elements relative to that of another mask."""
    return float(part.sum() / total.sum().clamp(min=1))


def _format_line(values: "np.ndarray[Any, Any]") -> str:
    """Return numbers as one line of the results file."""
    return " ".join(f"{value:.3g}" for value in values)


def _round_values(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return rows with six significant digits."""
    return [{key: float(f"{value:.6g}") for key, value in row.items()} for row in rows]
