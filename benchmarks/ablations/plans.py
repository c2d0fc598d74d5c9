"""List the runs of each ablation.

A run is a seed and settings. Ablations share runs, and a shared run is measured once. The network
is the cell `resnet` of benchmarks/matrix.py. Each seed has its own dense network.
"""

from collections.abc import Iterator
from typing import Any

Plan = dict[str, Any]

CELL = "resnet"
LAYER = "block3.conv1.weight"  # measured by itself: large, and pruned in part
PULL = 3.0  # λ · N: weight of the regularizer, independent of the number N of layer elements
RATIO, T0, LR = 1e-4, 1e-3, 0.03
L2 = 0.02  # λ of the L2 penalty, which is not divided by N
COMPRESSION = 20.0
EPOCHS, FINETUNE_EPOCHS = 8, 4
ALONE = {"epochs": EPOCHS + FINETUNE_EPOCHS, "finetune_epochs": 0}  # learning without fine-tuning
SEEDS = (0, 1, 2, 3, 4)  # seeds of the error bars
WATCHED_SEEDS = (0, 1, 2)  # seeds of regularizers and gradients
VARIED_SEEDS = (0, 1)  # seeds of settings that are changed one at a time
REGULARIZERS = ("l0", "l2", "none")
GRADIENTS = ("4", "10", "20")
GAP_T0 = (1e-3, 1e-1)
SPLITS = ((2, 10), (8, 4), (12, 0))  # epochs of learning and of fine-tuning
VARIED = (
    ("pull", (0.3, 3.0, 30.0), "λ·N"),
    ("t0", (1e-4, 1e-3, 1e-2), "T0"),
    ("threshold_lr_ratio", (1e-5, 1e-4, 1e-3), "η_τ/η"),
)
LRS = (0.01, 0.03, 0.1)


def iter_dense_runs() -> Iterator[Plan]:
    """Yield the dense networks."""
    for seed in SEEDS:
        yield {"mode": "dense", "seed": seed}


def make_paper_plan(seed: int = 0, **changed: Any) -> Plan:
    """Return a run in paper mode, which is given λ."""
    settings = {
        "mode": "paper",
        "pull": PULL,
        "threshold_lr_ratio": RATIO,
        "t0": T0,
        "regulariser": "l0",
        "weight_gradient": "4",
        "epochs": EPOCHS,
        "finetune_epochs": FINETUNE_EPOCHS,
        "lr": LR,
    }
    return {"seed": seed, **settings, **changed}


def make_budget_plan(seed: int = 0, **changed: Any) -> Plan:
    """Return a run in budget mode, which is given a compression ratio and solves for λ."""
    settings = {
        "mode": "budget",
        "compression": COMPRESSION,
        "epochs": EPOCHS,
        "finetune_epochs": FINETUNE_EPOCHS,
        "lr": LR,
    }
    return {"seed": seed, **settings, **changed}


def iter_regularizer_runs() -> Iterator[Plan]:
    """Yield runs with soft L0, with L2 and without a regularizer."""
    for kind in REGULARIZERS:
        extra = {"l2": L2} if kind == "l2" else {}
        for seed in WATCHED_SEEDS:
            yield make_paper_plan(seed, **ALONE, regulariser=kind, **extra)


def iter_gradient_runs() -> Iterator[Plan]:
    """Yield runs with the weight gradients (4), (10), and (20) clamped by (17)."""
    for kind in GRADIENTS:
        for seed in WATCHED_SEEDS:
            yield make_paper_plan(seed, **ALONE, weight_gradient=kind)


def iter_scatter_runs() -> Iterator[Plan]:
    """Yield the runs whose weights are saved for the scatter plot."""
    yield from (plan for plan in iter_gradient_runs() if plan["seed"] == 0)


def iter_gap_runs() -> Iterator[Plan]:
    """Yield runs with each weight gradient and each width of the transition of the sigmoid."""
    for t0 in GAP_T0:
        for kind in GRADIENTS:
            for seed in VARIED_SEEDS:
                yield make_paper_plan(seed, **ALONE, t0=t0, weight_gradient=kind)


def iter_seed_runs() -> Iterator[Plan]:
    """Yield runs of each seed in both modes."""
    for seed in SEEDS:
        yield make_budget_plan(seed)
        yield make_paper_plan(seed)


def iter_sensitivity_runs() -> Iterator[Plan]:
    """Yield runs in paper mode that change λ, T0 or the ratio of learning rates."""
    for key, values, _ in VARIED:
        for value in values:
            for seed in VARIED_SEEDS:
                yield make_paper_plan(seed, **{key: value})


def iter_budget_runs() -> Iterator[Plan]:
    """Yield runs in budget mode that change the learning rate or the division of epochs."""
    for lr in LRS:
        for seed in VARIED_SEEDS:
            yield make_budget_plan(seed, lr=lr)
    for epochs, finetune_epochs in SPLITS:
        for seed in VARIED_SEEDS:
            yield make_budget_plan(seed, epochs=epochs, finetune_epochs=finetune_epochs)


ABLATIONS = (
    iter_regularizer_runs,
    iter_gradient_runs,
    iter_gap_runs,
    iter_seed_runs,
    iter_sensitivity_runs,
    iter_budget_runs,
)


def list_runs() -> list[Plan]:
    """Return the runs of all ablations, each once."""
    runs: list[Plan] = []
    for ablation in ABLATIONS:
        runs += [plan for plan in ablation() if plan not in runs]
    return runs
