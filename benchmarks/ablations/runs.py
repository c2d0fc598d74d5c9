"""One run of an ablation: from the dense network to a pruned one, watched epoch by epoch."""

import copy
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor

from benchmarks.ablations.plans import BATCH, LAYERS, Plan
from benchmarks.jobs import final_numbers, learn, start, train_dense
from benchmarks.networks import as_onnx, build
from benchmarks.quality import DENSE
from benchmarks.small_networks import resnet
from ltp_pipeline import import_model
from ltp_pipeline.config import Settings
from ltp_pipeline.data import Data, Split
from ltp_pipeline.stages import select_entry
from ltp_pipeline.stages.learn_thresholds import make_method
from ltp_pipeline.stages.learn_thresholds.learning import Learning
from ltp_pipeline.stages.learn_thresholds.method import Method
from ltp_pipeline.stages.train import Job
from ltp_pipeline.stages.train.evaluate import accuracy
from ltp_pipeline.stages.train.phase import StepPosition

Tensors = dict[str, Tensor]

WATCHED_SAMPLES = 1_000
POINTS = 1_500  # of the scatter plot
BINS = np.linspace(0, 3, 61)  # of |w| / √τ


def untrained(network: str) -> onnx.ModelProto:
    """The network before any training."""
    if network == "resnet":
        return resnet()
    return as_onnx(build(network, classes=10, channels=1, size=28), (1, 28, 28))


def first(split: Split, count: int) -> Split:
    """The first samples of a split."""
    part = copy.copy(split)
    part.rows = split.rows[:count]
    part.targets = {name: values[:count] for name, values in split.targets.items()}
    return part


def dense(network: str, data: Data, cache: Path) -> Path:
    """The trained network to start from, the same for all runs."""
    path = cache / f"ablations-{network}-{len(data.train)}.onnx"
    if not path.is_file():
        settings = Settings.model_validate({"train": {**DENSE, "batch_size": BATCH[network]}})
        train_dense(*import_model(untrained(network)), data, settings, path)
    return path


def settings_of(plan: Plan, elements: int) -> Settings:
    """A plan as a user would write it."""
    train = {key: plan[key] for key in ("epochs", "finetune_epochs", "lr", "seed")}
    train["batch_size"] = BATCH[plan["network"]]
    if plan["mode"] == "budget":
        return Settings.model_validate({"train": train, "budget": {"target_compression": plan["compression"]}})
    method = {key: plan[key] for key in ("threshold_lr_ratio", "t0", "regulariser", "weight_gradient")}
    method["lambda"] = plan["l2"] if plan["regulariser"] == "l2" else plan["pull"] / elements
    return Settings.model_validate({"train": train, "method": method})


class Watched(Learning):
    """Learning that keeps what the figures need of each epoch."""

    def __init__(self, live: Mapping[str, Tensor], job: Job, method: Method, layer: str) -> None:
        super().__init__(live, job, method)
        self.layer, self.losses = layer, []
        self.seen: list[dict[str, float]] = []

    def after_backward(self, at: StepPosition) -> None:
        """Keep the loss."""
        super().after_backward(at)
        self.losses.append(at.loss)

    def end_epoch(self, epoch: int) -> dict[str, float]:
        """Keep what the network is like as it is trained, and hard-pruned."""
        found = super().end_epoch(epoch)
        with torch.no_grad():
            soft = {**self.live, **self.method.weights()}
        watched = first(self.job.data.train, WATCHED_SAMPLES)
        self.seen.append(
            {
                "epoch": epoch + 1,
                "kept": 1 / found["compression"],
                "val": found["val_accuracy"],
                "train": accuracy(self.job, soft, watched),
                "loss": float(np.mean(self.losses)),
                "mean_square": float(self.method.live[self.layer].detach().square().mean()),
            }
        )
        self.losses.clear()
        return found


def measure(plan: Plan, model: Path, data: Data) -> dict[str, Any]:
    """Prune once, and say what was seen on the way."""
    network, state = import_model(model)
    settings, layer = settings_of(plan, sum(k.elements for k in network.kernels)), LAYERS[plan["network"]]
    before = {k.name: state[k.name] for k in network.kernels}
    phases: list[Watched] = []

    def begin(live: Mapping[str, Tensor]) -> Watched:
        phases.append(Watched(live, job, make_method(network, live, settings), layer))
        return phases[-1]

    begun, used = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        job = start(network, data, settings, Path(scratch))
        entry = learn(job, state, begin)
        results = final_numbers(job, select_entry.finish(job, entry).state)
    (learning,) = phases
    method = learning.method
    taus = dict(zip(method.live, method.tau.detach().clamp(min=1e-30).tolist(), strict=True))
    after_learning = {name: weights.detach() for name, weights in method.live.items()}
    return {
        **results,
        "seconds": round(time.monotonic() - begun, 1),
        "cpu_seconds": round(time.process_time() - used, 1),
        "before": {"mean_square": float(before[layer].square().mean())},
        "epochs_seen": _rounded(learning.seen),
        **looked_at(before, after_learning, taus, layer if plan["network"] == "resnet20" else None),
    }


def looked_at(before: Tensors, after: Tensors, taus: dict[str, float], layer: str | None) -> dict[str, Any]:
    """All kernels together, every weight in units of the √τ of its own, and one layer; scatter plots with a layer."""
    together = (torch.cat([w[name].flatten() / taus[name] ** 0.5 for name in taus]) for w in (before, after))
    kernels = closely(*together, 1.0)
    if layer is None:
        return {"kernels": {key: kernels[key] for key in ("kept", "about_threshold")}}
    return {"layer": closely(before[layer], after[layer], taus[layer]), "kernels": kernels}


def closely(before: Tensor, after: Tensor, tau: float) -> dict[str, Any]:
    """Weights before and after: some of them for a scatter plot, and where all lie about the threshold."""
    chosen = np.sort(np.random.default_rng(0).permutation(before.numel())[:POINTS])
    ratio = after.abs().flatten() / tau**0.5
    return {
        "tau": tau,
        "kept": float((after.square() > tau).float().mean()),
        "about_threshold": np.histogram(ratio.numpy(), BINS)[0].tolist(),
        "before": _line(before.flatten().numpy()[chosen]),
        "after": _line(after.flatten().numpy()[chosen]),
    }


def judge_start(name: str, model: Path, data: Data) -> dict[str, Any]:
    """What the dense network is worth."""
    network, state = import_model(model)
    with tempfile.TemporaryDirectory() as scratch:
        found = final_numbers(start(network, data, Settings(), Path(scratch)), state)
    return {
        "network": name,
        "test": found["test"],
        "val": found["val"],
        "elements": sum(k.elements for k in network.kernels),
        "train_samples": len(data.train),
        "batch": BATCH[name],
    }


def _line(values: "np.ndarray[Any, Any]") -> str:
    """Many numbers as one line of the results file."""
    return " ".join(f"{value:.3g}" for value in values)


def _rounded(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{key: float(f"{value:.6g}") for key, value in row.items()} for row in rows]
