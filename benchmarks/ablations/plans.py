"""Which runs each ablation consists of.

A run is a seed and settings; ablations share runs, and a run that two of them ask for is measured
once. The network is that of the cell `resnet` of benchmarks/matrix.py, of which every seed has one
of its own.
"""

from collections.abc import Iterator
from typing import Any

Plan = dict[str, Any]

CELL = "resnet"
LAYER = "block3.conv1.weight"  # looked at more closely: large, and pruned in part
PULL = 3.0  # λ · N: the regulariser's weight, free of the number N of kernel elements
RATIO, T0, LR = 1e-4, 1e-3, 0.03
L2 = 0.02  # λ of the L2 penalty, in units of its own
COMPRESSION = 20.0
EPOCHS, FINETUNE_EPOCHS = 8, 4
ALONE = {
    "epochs": EPOCHS + FINETUNE_EPOCHS,
    "finetune_epochs": 0,
}  # learning as it goes, to its end
SEEDS = (0, 1, 2, 3, 4)  # of the error bars
WATCHED_SEEDS = (0, 1, 2)  # of regulariser and gradient
VARIED_SEEDS = (0, 1)  # of all that is changed one at a time
REGULARISERS = ("l0", "l2", "none")
GRADIENTS = ("4", "10", "20")
GAP_T0 = (1e-3, 1e-1)
SPLITS = ((2, 10), (8, 4), (12, 0))  # epochs of learning and of fine-tuning
VARIED = (
    ("pull", (0.3, 3.0, 30.0), "λ·N"),
    ("t0", (1e-4, 1e-3, 1e-2), "T0"),
    ("threshold_lr_ratio", (1e-5, 1e-4, 1e-3), "η_τ/η"),
)
LRS = (0.01, 0.03, 0.1)


def starts() -> Iterator[Plan]:
    """The dense networks."""
    for seed in SEEDS:
        yield {"mode": "dense", "seed": seed}


def paper(seed: int = 0, **changed: Any) -> Plan:
    """Paper mode, λ given."""
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


def budget(seed: int = 0, **changed: Any) -> Plan:
    """Budget mode, compression given: λ is solved for, and there is neither T0 nor a ratio of learning rates."""
    settings = {
        "mode": "budget",
        "compression": COMPRESSION,
        "epochs": EPOCHS,
        "finetune_epochs": FINETUNE_EPOCHS,
        "lr": LR,
    }
    return {"seed": seed, **settings, **changed}


def regulariser() -> Iterator[Plan]:
    """Soft L0, L2 and none."""
    for kind in REGULARISERS:
        for seed in WATCHED_SEEDS:
            yield paper(seed, **ALONE, regulariser=kind, **({"l2": L2} if kind == "l2" else {}))


def gradient() -> Iterator[Plan]:
    """Weight gradient by (4), by (10), and by (20) clamped by (17)."""
    for kind in GRADIENTS:
        for seed in WATCHED_SEEDS:
            yield paper(seed, **ALONE, weight_gradient=kind)


def drawn() -> Iterator[Plan]:
    """The runs of which weights are kept for the scatter plot."""
    yield from (plan for plan in gradient() if plan["seed"] == 0)


def gap() -> Iterator[Plan]:
    """The same weight gradients for wider and wider transitions of the sigmoid."""
    for t0 in GAP_T0:
        for kind in GRADIENTS:
            for seed in VARIED_SEEDS:
                yield paper(seed, **ALONE, t0=t0, weight_gradient=kind)


def seeds() -> Iterator[Plan]:
    """The trail over independent runs in both modes."""
    for seed in SEEDS:
        yield budget(seed)
        yield paper(seed)


def sensitivity() -> Iterator[Plan]:
    """Paper mode: λ, T0 and the ratio of learning rates, one at a time."""
    for key, values, _ in VARIED:
        for value in values:
            for seed in VARIED_SEEDS:
                yield paper(seed, **{key: value})


def budget_sensitivity() -> Iterator[Plan]:
    """Budget mode: the learning rate, and how epochs are divided."""
    for lr in LRS:
        for seed in VARIED_SEEDS:
            yield budget(seed, lr=lr)
    for epochs, after in SPLITS:
        for seed in VARIED_SEEDS:
            yield budget(seed, epochs=epochs, finetune_epochs=after)


ABLATIONS = (regulariser, gradient, gap, seeds, sensitivity, budget_sensitivity)


def every() -> list[Plan]:
    """All runs, each once."""
    runs: list[Plan] = []
    for ablation in ABLATIONS:
        runs += [plan for plan in ablation() if plan not in runs]
    return runs
