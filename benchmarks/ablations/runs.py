"""One run of an ablation: from the dense network to a pruned one, watched epoch by epoch."""

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
from benchmarks.contexts import final_numbers, learn, prepared
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
POINTS = 1_000  # of the scatter plot
BINS = np.linspace(0, 3, 61)  # of |w| / √τ


def measure(plan: Plan, folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Prune once, as `ltp-pipeline run` does, and say what was seen on the way; or judge the dense network."""
    cell = matrix.CELLS[CELL]
    model = matrix.dense(CELL, plan["seed"], folders, cache)
    data = datasets.data_settings(cell.source, cell.pruned_with, folders, cache)
    elements = sum(k.elements for k in ltp_pipeline.import_model(model)[0].layer_weights)
    with tempfile.TemporaryDirectory() as scratch:
        if plan["mode"] == "dense":
            context, state = prepared(model, Settings.model_validate({"data": data}), Path(scratch))
            return {
                **final_numbers(context, state),
                "elements": elements,
                "train_samples": len(context.data.train),
            }
        context, state = prepared(model, settings_of(plan, elements, data), Path(scratch))
        return pruned(context, state, is_drawn=plan in plans.drawn())


def settings_of(plan: Plan, elements: int, data: Mapping[str, Any]) -> Settings:
    """A plan as a user would write it."""
    given = {
        "data": data,
        "train": {key: plan[key] for key in ("epochs", "finetune_epochs", "lr", "seed")},
    }
    if plan["mode"] == "budget":
        return Settings.model_validate(
            {**given, "budget": {"target_compression": plan["compression"]}}
        )
    method = {key: plan[key] for key in ("threshold_lr_ratio", "t0")}
    method["regularizer"] = plan["regulariser"]
    method["weight_gradient"] = WEIGHT_GRADIENTS[plan["weight_gradient"]]
    method["lambda"] = plan["l2"] if plan["regulariser"] == "l2" else plan["pull"] / elements
    return Settings.model_validate({**given, "method": method})


def pruned(context: RunContext, state: StateDict, is_drawn: bool) -> dict[str, Any]:
    """Learn, prune and fine-tune; accuracies, what each epoch was like, and where the weights lie."""
    before = {k.name: state[k.name] for k in context.network.prunable_weights}
    phases: list[Watched] = []

    def begin(live: Mapping[str, Tensor]) -> Watched:
        phases.append(
            Watched(
                live,
                context,
                make_pruning_method(
                    context.network, live, context.settings, context.resolved.aggressiveness
                ),
            )
        )
        return phases[-1]

    entry = learn(context, state, begin)
    results = final_numbers(context, select_entry.finish_entry(context, entry).state)
    (learning,) = phases
    method = learning.method
    taus = dict(
        zip(method.layer_weights, method.tau.detach().clamp(min=1e-30).tolist(), strict=True)
    )
    after = {name: weights.detach() for name, weights in method.layer_weights.items()}
    return {
        **results,
        "before": {"mean_square": float(before[LAYER].square().mean())},
        "epochs_seen": _rounded(learning.seen),
        **looked_at(before, after, taus, is_drawn),
    }


class Watched(ThresholdLearningPhase):
    """Learning that keeps what the figures need of each epoch."""

    def __init__(
        self, live: Mapping[str, Tensor], context: RunContext, method: PruningMethod
    ) -> None:
        super().__init__(live, context, method)
        self.seen: list[dict[str, float]] = []

    def end_epoch(self, epoch: int) -> dict[str, float]:
        """Keep what the network is like as it is trained, and hard-pruned."""
        found = super().end_epoch(epoch)
        with torch.no_grad():
            soft = {**self.tensors, **self.method.effective_weights()}
        self.seen.append(
            {
                "epoch": epoch + 1,
                "kept": 1 / found["compression"],
                "val": found["val_accuracy"],
                "train": evaluate_metric(
                    self.context, soft, first(self.context.data.train, WATCHED_SAMPLES)
                ),
                "mean_square": float(self.method.layer_weights[LAYER].detach().square().mean()),
            }
        )
        return found


def first(split: Split, count: int) -> Split:
    """The first samples of a split."""
    return Split(split.name, split.inputs, split.targets, split.rows[:count])


def looked_at(
    before: Tensors, after: Tensors, taus: Mapping[str, float], is_drawn: bool
) -> dict[str, Any]:
    """All kernels together, every weight in units of the √τ of its own, and one layer."""
    together = (
        torch.cat([w[name].flatten() / taus[name] ** 0.5 for name in taus]) for w in (before, after)
    )
    return {
        "kernels": closely(*together, 1.0, is_drawn),
        "layer": closely(before[LAYER], after[LAYER], taus[LAYER], is_drawn),
    }


def closely(before: Tensor, after: Tensor, tau: float, is_drawn: bool) -> dict[str, Any]:
    """Where weights lie about the threshold, which of them crossed it, and some of them for a scatter plot."""
    was, is_kept = before.square() > tau, after.square() > tau
    counts = np.histogram((after.abs().flatten() / tau**0.5).numpy(), BINS)[0]
    found = {
        "tau": tau,
        "kept": float(is_kept.float().mean()),
        "came": _share(~was & is_kept, is_kept),
        "went": _share(was & ~is_kept, ~is_kept),
        "about_threshold": " ".join(map(str, counts)),
    }
    if is_drawn:
        chosen = np.sort(np.random.default_rng(0).permutation(before.numel())[:POINTS])
        found |= {
            "before": _line(before.flatten().numpy()[chosen]),
            "after": _line(after.flatten().numpy()[chosen]),
        }
    return found


def _share(part: Tensor, of: Tensor) -> float:
    return float(part.sum() / of.sum().clamp(min=1))


def _line(values: "np.ndarray[Any, Any]") -> str:
    """Many numbers as one line of the results file."""
    return " ".join(f"{value:.3g}" for value in values)


def _rounded(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{key: float(f"{value:.6g}") for key, value in row.items()} for row in rows]
