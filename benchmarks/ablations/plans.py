"""Which runs each ablation consists of.

A run is a network, a seed and settings; ablations share runs, and a run that two of them ask for is measured once.
"""

from collections.abc import Iterator
from typing import Any

Plan = dict[str, Any]

LAYERS = {"resnet20": "blocks.8.conv2.conv.weight", "resnet": "block3.conv2.weight"}  # looked at more closely
SAMPLES = {"resnet20": 10_000, "resnet": 10_000}
AUGMENTED = ("resnet20",)  # images are shifted and mirrored at random, as CIFAR usually is
BATCH = {"resnet20": 64, "resnet": 128}
PULL = 3.0  # λ · N: the regulariser's weight, free of the number N of kernel elements
RATIO, T0, LR = 1e-4, 1e-3, 0.03
L2 = 0.02  # λ of the L2 penalty, in units of its own
COMPRESSION = 20.0
EPOCHS, FINETUNE_EPOCHS = {"resnet20": 15, "resnet": 6}, {"resnet20": 0, "resnet": 2}
SEEDS = tuple(range(10))
SPLITS = ((2, 6), (4, 4), (6, 2), (8, 0))  # epochs of learning and of fine-tuning
SENSITIVITY_SEEDS = (0, 1)
GRADIENT_SEEDS = (0, 1, 2)
REGULARISER_SEEDS = (0, 1)
GAP_SEEDS, GAP_T0 = (0, 1, 2), (1e-3, 1e-2, 1e-1, 1.0)
VARIED = (  # two decades each, four of T0
    ("pull", (0.3, 1.0, 3.0, 10.0, 30.0), "λ·N"),
    ("t0", (1e-4, 1e-3, 1e-2, 1e-1, 1.0), "T0"),
    ("threshold_lr_ratio", (1e-5, 3e-5, 1e-4, 3e-4, 1e-3), "η_τ/η"),
)
LRS = (0.003, 0.01, 0.03, 0.1, 0.3)


def paper(network: str, seed: int = 0, **changed: Any) -> Plan:
    """Paper mode, λ given."""
    settings = {
        "mode": "paper",
        "pull": PULL,
        "threshold_lr_ratio": RATIO,
        "t0": T0,
        "regulariser": "l0",
        "weight_gradient": "4",
        "epochs": EPOCHS[network],
        "finetune_epochs": FINETUNE_EPOCHS[network],
        "lr": LR,
    }
    return {"network": network, "seed": seed, **settings, **changed}


def budget(network: str, seed: int = 0, **changed: Any) -> Plan:
    """Budget mode, compression given: T = τ, λ is solved, and thresholds move at the learning rate."""
    settings = {
        "mode": "budget",
        "compression": COMPRESSION,
        "epochs": EPOCHS[network],
        "finetune_epochs": FINETUNE_EPOCHS[network],
        "lr": LR,
    }
    return {"network": network, "seed": seed, **settings, **changed}


def regulariser() -> Iterator[Plan]:
    """None, L2 and soft L0."""
    for seed in REGULARISER_SEEDS:
        yield paper("resnet20", seed)
        yield paper("resnet20", seed, regulariser="l2", l2=L2)
        yield paper("resnet20", seed, regulariser="none")


def gradient() -> Iterator[Plan]:
    """Weight gradient by (4) and by (10)."""
    for seed in GRADIENT_SEEDS:
        for kind in ("4", "10"):
            yield paper("resnet20", seed, weight_gradient=kind)


def gap() -> Iterator[Plan]:
    """Weight gradient by (4) and by (10) for wider and wider transitions of the sigmoid."""
    for seed in GAP_SEEDS:
        for t0 in GAP_T0:
            for kind in ("4", "10"):
                yield paper("resnet", seed, t0=t0, weight_gradient=kind)


def seeds() -> Iterator[Plan]:
    """The trail over independent runs in both modes."""
    for seed in SEEDS:
        yield budget("resnet", seed)
        yield paper("resnet", seed)


def sensitivity() -> Iterator[Plan]:
    """Paper mode: λ, T0 and the ratio of learning rates, one at a time."""
    for seed in SENSITIVITY_SEEDS:
        for key, values, _ in VARIED:
            for value in values:
                yield paper("resnet", seed, **{key: value})


def budget_sensitivity() -> Iterator[Plan]:
    """Budget mode: the learning rate, and how epochs are divided; λ, T0 and the ratio do not exist in it."""
    for seed in SENSITIVITY_SEEDS:
        for lr in LRS:
            yield budget("resnet", seed, lr=lr)
        for epochs, after in SPLITS:
            yield budget("resnet", seed, epochs=epochs, finetune_epochs=after)


ABLATIONS = {
    "regulariser": regulariser,
    "gradient": gradient,
    "gap": gap,
    "sensitivity": sensitivity,
    "budget_sensitivity": budget_sensitivity,
    "seeds": seeds,
}
