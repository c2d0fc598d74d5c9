"""The part of docs/results.md about the ablations: tables, figures and what they show."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks import findings
from benchmarks.ablations import plans
from benchmarks.findings import at_threshold, just_below, lasts
from benchmarks.plots import KINDS, REGULARISERS
from benchmarks.rows import Row, by, found, mean_std, origins, repeated
from benchmarks.tables import figure, spread, table, text
from ltp_pipeline.settings.schema import TrainSettings

OUTCOME = (
    "changed",
    "compression",
    "validation top-1 before fine-tuning, %",
    "test top-1, %",
    "seeds",
)


def sections(results: Mapping[str, Any]) -> Iterable[str]:
    """Every ablation that has rows."""
    rows = results.get("ablations", {}).get("rows", [])
    if not rows:
        return
    commit, processor = origins(rows)
    yield "## Ablations\n"
    yield text(
        "What the paper varies, and what is left to vary in budget mode. The network is the small ResNet of the",
        f"matrix, on Fashion-MNIST; all rows are of commit {commit}, on {processor}. Numbers after ± are sample",
        "standard deviations over seeds. Every seed has a dense network of its own, so they cover the training of the",
        "dense network and the pruning run, not the choice of the test sample.",
    )
    yield from starts(rows)
    yield text(
        f"{plans.EPOCHS + plans.FINETUNE_EPOCHS} epochs in all, SGD with momentum {TrainSettings().momentum:g}, one",
        "cosine of the learning rate over learning and fine-tuning. λ is given times the number N of kernel elements.",
        f"Paper mode has λ·N = {plans.PULL:g}, T0 = {plans.T0:g} and η_τ/η = {plans.RATIO:g} unless another value is",
        "given: λ and the ratio were found by a few trials so that the network is pruned within so few steps, and the",
        "ratio is ten times the largest that the paper uses. Each layer keeps a floor of its weights, momentum of",
        "pruned weights is cleared, and τ ≥ 0 in all runs.",
    )
    for part in (regulariser, gradient, gap, seeds, sensitivity, budget_sensitivity):
        yield from part(rows)


def starts(rows: Sequence[Row]) -> Iterable[str]:
    """The dense networks."""
    if shown := found(rows, plans.starts()):
        steps = shown[0]["train_samples"] // TrainSettings().batch_size
        test, val = (spread([100 * row[key] for row in shown]) for key in ("test", "val"))
        yield text(
            f"Dense: {shown[0]['elements']:,} kernel elements, trained with {shown[0]['train_samples']:,} images, with",
            f"which it is also pruned, {steps} steps an epoch; test top-1 {test} %, validation top-1 {val} %,",
            f"{len(shown)} seeds.",
        )


def regulariser(rows: Sequence[Row]) -> Iterable[str]:
    """None, L2, soft L0."""
    shown = found(rows, plans.regulariser())
    if not shown:
        return
    yield "### Regulariser: none, L2, soft L0\n"
    kinds = by(shown, "regulariser")
    lines = []
    for kind, runs in kinds.items():
        weight = {
            "l0": f"λ·N = {runs[0]['pull']:g}",
            "l2": f"λ = {runs[0].get('l2', 0):g}",
            "none": "–",
        }[kind]
        measured = [
            spread([100 * value for value in lasts(runs, key)]) for key in ("kept", "train", "val")
        ]
        measured += [
            spread([100 * row["test"] for row in runs]),
            ", ".join(f"{g:.2g}" for g in findings.growths(runs)),
        ]
        lines.append([REGULARISERS[kind][0], weight, *measured, str(len(runs))])
    head = ("regulariser", "weight", "kept, %", "training top-1, %")
    hard = ("validation top-1, hard-pruned, %", "test top-1, hard-pruned, %")
    yield from table((*head, *hard, "mean w² / that of the start", "seeds"), lines)
    yield figure(
        "regulariser", "Kept weights, training accuracy and mean squared weight over epochs"
    )
    yield text(
        f"{shown[0]['epochs']} epochs of learning, no fine-tuning; a line for each seed. Mean squared weights are",
        f"those of `{plans.LAYER}`. Training accuracy is that of the soft-pruned network on the first training images.",
    )
    if set(kinds) == set(plans.REGULARISERS):
        yield from findings.regulariser(**kinds)


def gradient(rows: Sequence[Row]) -> Iterable[str]:
    """Weight gradient by (4), by (10), and by (20) with (17)."""
    shown = found(rows, plans.gradient())
    if not shown:
        return
    yield "### Gradient of the weights: (4), (10), and (20) clamped by (17)\n"
    kinds = by(shown, "weight_gradient")
    lines = [
        [
            KINDS[kind],
            spread([100 * value for value in lasts(runs, "kept")]),
            *(
                spread([at_threshold(row[part]) for row in runs], 2)
                for part in ("kernels", "layer")
            ),
            *(spread([100 * row["kernels"][key] for row in runs]) for key in ("came", "went")),
            spread([100 * value for value in lasts(runs, "val")]),
            spread([100 * row["test"] for row in runs]),
            str(len(runs)),
        ]
        for kind, runs in kinds.items()
    ]
    density = ("density at the threshold, all kernels", "the same, one layer")
    crossings = ("of the kept: below τ at first, %", "of the pruned: above τ at first, %")
    tops = ("validation top-1, hard-pruned, %", "test top-1, hard-pruned, %")
    yield from table(("gradient", "kept, %", *density, *crossings, *tops, "seeds"), lines)
    yield text(
        "Density at the threshold: weights per length of |w| within 5 % of √τ, divided by that from 15 % to 50 % away",
        "on both sides; 0 means a gap. For all kernels together, every weight is taken in units of the √τ of its own",
        "kernel; the layer is the same as above. Epochs as above. The clamp of (17) takes momentum into account: a",
        "steady gradient moves a weight in the transition region by at most a tenth of T a step. Scatter plots are of",
        "seed 0 and show a random part of the weights.",
    )
    yield figure("gradient-scatter", "Squared weights before and after, with the threshold")
    yield figure("gradient-gap", "Weights about the threshold, and kept weights over epochs")
    if set(kinds) == set(plans.GRADIENTS):
        yield from findings.gradient(kinds)


def gap(rows: Sequence[Row]) -> Iterable[str]:
    """Where the gap can be seen."""
    shown = found(rows, plans.gap())
    if not shown:
        return
    yield "### Around the threshold, by the width of the sigmoid's transition\n"
    lines = []
    for t0, own in by(shown, "t0").items():
        for kind, runs in by(own, "weight_gradient").items():
            measured = [
                spread([at_threshold(row["kernels"]) for row in runs], 2),
                spread([just_below(row) for row in runs], 0),
                spread([100 * value for value in lasts(runs, "kept")]),
                spread([100 * value for value in lasts(runs, "val")]),
            ]
            lines.append([f"{t0:g}", f"({kind})", *measured, str(len(runs))])
    head = (
        "density at the threshold",
        "weights up to 5 % below √τ",
        "kept, %",
        "validation top-1, hard-pruned, %",
    )
    yield from table(("T0", "gradient", *head, "seeds"), lines)
    yield figure("gap-by-t0", "Weights about the threshold for each T0")
    groups = {t0: by(own, "weight_gradient") for t0, own in by(shown, "t0").items()}
    if all(set(kinds) == set(plans.GRADIENTS) for kinds in groups.values()):
        yield from findings.gap(groups)


def seeds(rows: Sequence[Row]) -> Iterable[str]:
    """The trail over independent runs."""
    shown = found(rows, plans.seeds())
    if not shown:
        return
    yield "### Error bars of the trail\n"
    modes = by(shown, "mode")
    for mode, runs in modes.items():
        trails = [row["epochs_seen"] for row in runs]
        said = (
            f"asked for {runs[0]['compression']:g}×"
            if mode == "budget"
            else f"λ·N = {runs[0]['pull']:g}"
        )
        yield text(f"{mode.capitalize()} mode, {said}, {len(runs)} seeds:")
        yield from table(
            ("epoch", *(f"{seen['epoch']:g}" for seen in trails[0]), "fine-tuned, test"),
            [
                [
                    "compression",
                    *spreads(trails, lambda s: 1 / s["kept"]),
                    spread([row["reached"] for row in runs]),
                ],
                [
                    "top-1, %",
                    *spreads(trails, lambda s: 100 * s["val"]),
                    spread([100 * row["test"] for row in runs]),
                ],
            ],
        )
    yield text(
        "Accuracy along the trail is on the validation split and without fine-tuning. The trails do not compare the",
        "modes: they reach different compressions.",
    )
    yield figure("seeds", "Accuracy against compression over seeds")
    if all(len(runs) > 1 for runs in modes.values()):
        yield from findings.seeds(modes)


def sensitivity(rows: Sequence[Row]) -> Iterable[str]:
    """Paper mode: one hyper-parameter at a time."""
    shown = found(rows, plans.sensitivity())
    if not shown:
        return
    yield "### Hyper-parameters, paper mode\n"
    changed = {
        k: [repeated(shown, plans.paper, {k: value}) for value in values]
        for k, values, _ in plans.VARIED
    }
    lines = [
        [f"{name} = {value:.3g}", *outcome(runs)]
        for key, values, name in plans.VARIED
        for value, runs in zip(values, changed[key], strict=True)
        if runs
    ]
    yield from table(OUTCOME, lines)
    yield text(
        f"The others stay at λ·N = {plans.PULL:g}, T0 = {plans.T0:g} and η_τ/η = {plans.RATIO:g}."
    )
    yield figure("sensitivity", "Trails for each value of each hyper-parameter")
    if all(runs for groups in changed.values() for runs in groups):
        yield from findings.sensitivity(changed)


def budget_sensitivity(rows: Sequence[Row]) -> Iterable[str]:
    """Budget mode: what a user can still set."""
    shown = found(rows, plans.budget_sensitivity())
    if not shown:
        return
    yield "### What is left to set in budget mode\n"
    yield text(
        f"Asked for {plans.COMPRESSION:g}×. T0, λ and η_τ/η do not exist in it: λ is solved for, and thresholds move",
        "at the learning rate. What a user can set is the learning rate, and how epochs are divided between learning",
        "and fine-tuning.",
    )
    rates = {
        f"learning rate {lr:.2g}": repeated(shown, plans.budget, {"lr": lr}) for lr in plans.LRS
    }
    splits = {
        f"epochs {e} + {a}": repeated(shown, plans.budget, {"epochs": e, "finetune_epochs": a})
        for e, a in plans.SPLITS
    }
    yield from table(
        OUTCOME, [[said, *outcome(runs)] for said, runs in (rates | splits).items() if runs]
    )
    yield text(
        f"The others stay at learning rate {plans.LR:g} and {plans.EPOCHS} + {plans.FINETUNE_EPOCHS} epochs."
    )
    yield figure("budget-sensitivity", "Accuracy against learning rate and division of epochs")
    if all(rates.values()) and all(splits.values()):
        yield from findings.budget_sensitivity(rates, splits)


def outcome(runs: Sequence[Row]) -> list[str]:
    """Compression, accuracy before and after fine-tuning, and how many seeds."""
    return [
        f"{mean_std([row['reached'] for row in runs])[0]:.1f}×",
        spread([100 * row["epochs_seen"][-1]["val"] for row in runs]),
        spread([100 * row["test"] for row in runs]),
        str(len(runs)),
    ]


def spreads(trails: Sequence[Sequence[Row]], value: Callable[[Row], float]) -> list[str]:
    """Mean ± standard deviation of each epoch."""
    return [spread([value(seen) for seen in epoch]) for epoch in zip(*trails, strict=True)]
