"""The part of docs/results.md about the ablations: tables, figures and what they show."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks import findings
from benchmarks.ablations import plans
from benchmarks.findings import at_threshold, crossed, just_below, lasts
from benchmarks.plots import KINDS, REGULARISERS
from benchmarks.rows import Row, by, found, mean_std, repeated
from benchmarks.tables import figure, percent, spread, table, text

GAPS = ("(4)", "(10)")
OUTCOME = ("changed", "compression", "validation top-1 before fine-tuning, %", "test top-1, %", "seeds")


def sections(results: Mapping[str, Any]) -> Iterable[str]:
    """Every ablation that has rows."""
    about = results.get("ablations")
    if about is None:
        return
    yield "## Ablations\n"
    yield text(
        f"{about['data']}; {about['settings']}. The networks to start from, trained for {about['dense']['epochs']}",
        "epochs on the same training images:",
    )
    yield from table(
        ("network", "kernel elements", "training images", "batch", "validation top-1, %", "test top-1, %"),
        (
            [n["network"], f"{n['elements']:,}", f"{n['train_samples']:,}", str(n["batch"]), *map(percent, tops)]
            for n in about["starts"]
            for tops in [(n["val"], n["test"])]
        ),
    )
    yield text(
        "Images for ResNet20 are shifted and mirrored at random, as CIFAR usually is. These are runs for a processor",
        "core: a few hundred steps of the small ResNet, two thousand of ResNet20, where the paper prunes for tens of",
        "epochs of more images. λ is given times the number N of kernel elements, so that networks compare. λ and",
        "η_τ/η around which the paper mode was measured come from a few trial runs: large enough to prune within the",
        "epochs, small enough not to prune a layer away in the first steps.",
    )
    for part in (regulariser, gradient, gap, seeds, sensitivity, budget_sensitivity):
        yield from part(about["rows"])


def regulariser(rows: Sequence[Row]) -> Iterable[str]:
    """None, L2, soft L0."""
    shown = found(rows, plans.regulariser())
    if not shown:
        return
    yield "### Regulariser: none, L2, soft L0 (ResNet20)\n"
    kinds = by(shown, "regulariser")
    lines = []
    for kind, runs in kinds.items():
        weight = {"l0": f"λ·N = {runs[0]['pull']:g}", "l2": f"λ = {runs[0].get('l2', 0):g}", "none": "–"}[kind]
        measured = [spread([100 * value for value in lasts(runs, key)]) for key in ("kept", "train", "val")]
        measured += [spread([100 * row["test"] for row in runs]), ", ".join(f"{g:.2g}" for g in findings.growths(runs))]
        lines.append([REGULARISERS[kind][0], weight, *measured, str(len(runs))])
    head = ("regulariser", "weight", "kept, %", "training top-1, %")
    hard = ("validation top-1, hard-pruned, %", "test top-1, hard-pruned, %")
    yield from table((*head, *hard, "mean w² / that of the start", "seeds"), lines)
    yield figure("regulariser", "Kept weights, training accuracy and mean squared weight over epochs")
    yield text(
        f"T0 = {shown[0]['t0']:g}, η_τ/η = {shown[0]['threshold_lr_ratio']:g}, {shown[0]['epochs']} epochs, no",
        f"fine-tuning; a line for each seed. Mean squared weights are those of `{plans.LAYERS['resnet20']}`, which is",
        "the paper's layer3.2.conv2. Training accuracy is that of the soft-pruned network on the first training",
        "images.",
    )
    if set(kinds) == set(REGULARISERS):
        yield from findings.regulariser(**kinds)


def gradient(rows: Sequence[Row]) -> Iterable[str]:
    """Weight gradient by (4) and by (10)."""
    shown = found(rows, plans.gradient())
    if not shown:
        return
    yield "### Gradient of the weights: (4) against (10) (ResNet20)\n"
    kinds = by(shown, "weight_gradient")
    lines = [
        [
            KINDS[kind],
            spread([100 * value for value in lasts(runs, "kept")]),
            *(spread([at_threshold(row[part]) for row in runs], 2) for part in ("kernels", "layer")),
            *(spread([100 * share for share in shares]) for shares in zip(*map(crossed, runs), strict=True)),
            spread([100 * value for value in lasts(runs, "val")]),
            str(len(runs)),
        ]
        for kind, runs in kinds.items()
    ]
    density = ("density at the threshold, all kernels", "the same, one layer")
    crossings = ("of the kept: below τ at first, %", "of the pruned: above τ at first, %")
    yield from table(("gradient", "kept, %", *density, *crossings, "validation top-1, hard-pruned, %", "seeds"), lines)
    yield text(
        "Density at the threshold: weights per length of |w| within 5 % of √τ, divided by that from 15 % to 50 % away",
        "on both sides; 0 means a gap. For all kernels together, every weight is taken in units of the √τ of its own",
        "kernel; the layer is the same as above. What was above or below τ at first is counted among the weights of",
        "the scatter plot of all kernels, a random part of them. Scatter plots are of seed 0.",
    )
    yield figure("gradient-scatter", "Squared weights before and after, with the threshold")
    yield figure("gradient-gap", "Weights about the threshold, and kept weights over epochs")
    if {"4", "10"} <= set(kinds):
        yield from findings.gradient(kinds["4"], kinds["10"])


def gap(rows: Sequence[Row]) -> Iterable[str]:
    """Where the gap can be seen."""
    shown = found(rows, plans.gap())
    if not shown:
        return
    yield "### The gap around the threshold, by the width of the sigmoid's transition (small ResNet)\n"
    lines = []
    for t0 in plans.GAP_T0:
        kinds = by([row for row in shown if row["t0"] == t0], "weight_gradient").values()
        densities = [spread([at_threshold(row["kernels"]) for row in runs], 2) for runs in kinds]
        below = [spread([just_below(row["kernels"]) for row in runs], 0) for runs in kinds]
        kept = [spread([100 * value for value in lasts(runs, "kept")]) for runs in kinds]
        lines.append([f"{t0:g}", *densities, *below, *kept])
    head = [
        f"{what}, {kind}" for what in ("density at the threshold", "up to 5 % below √τ", "kept, %") for kind in GAPS
    ]
    yield from table(("T0", *head), lines)
    count = len({row["seed"] for row in shown})
    yield text(
        "Density at the threshold as above, over all kernels; up to 5 % below √τ: how many weights end there.",
        f"{count} seeds.",
    )
    yield figure("gap-by-t0", "Weights about the threshold for four values of T0")
    if len(shown) == len(list(plans.gap())):
        yield from findings.gap({t0: by([r for r in shown if r["t0"] == t0], "weight_gradient") for t0 in plans.GAP_T0})


def seeds(rows: Sequence[Row]) -> Iterable[str]:
    """The trail over independent runs."""
    shown = found(rows, plans.seeds())
    if not shown:
        return
    yield "### Error bars of the trail (small ResNet)\n"
    for mode in ("budget", "paper"):
        runs = [row for row in shown if row["mode"] == mode]
        if not runs:
            continue
        trails = [row["epochs_seen"] for row in runs]
        said = f"asked for {runs[0]['compression']:g}×" if mode == "budget" else f"λ·N = {runs[0]['pull']:g}"
        yield text(f"{mode.capitalize()} mode, {said}, {len(runs)} seeds:")
        yield from table(
            ("epoch", *(f"{seen['epoch']:g}" for seen in trails[0]), "fine-tuned, test"),
            [
                ["compression", *spreads(trails, lambda s: 1 / s["kept"]), spread([row["reached"] for row in runs])],
                ["top-1, %", *spreads(trails, lambda s: 100 * s["val"]), spread([100 * row["test"] for row in runs])],
            ],
        )
    yield text(
        "Accuracy along the trail is on the validation split and without fine-tuning. A seed decides the order of",
        "batches; the dense network is the same for all of them. The trails do not compare the modes: budget mode",
        "is on its way to the compression asked for there, and paper mode ends far from that.",
    )
    yield figure("seeds", "Accuracy against compression over seeds")
    budget, paper = ([row for row in shown if row["mode"] == mode] for mode in ("budget", "paper"))
    if budget and paper:
        yield from findings.seeds(budget, paper)


def sensitivity(rows: Sequence[Row]) -> Iterable[str]:
    """Paper mode: one hyper-parameter at a time."""
    shown = found(rows, plans.sensitivity())
    if not shown:
        return
    yield "### Hyper-parameters, paper mode (small ResNet)\n"
    lines = []
    for key, values, name in plans.VARIED:
        for value in values:
            runs = repeated(shown, plans.paper, {key: value})
            if runs:
                lines.append([f"{name} = {value:.3g}", *outcome(runs)])
    yield from table(OUTCOME, lines)
    yield text(f"The others stay at λ·N = {plans.PULL:g}, T0 = {plans.T0:g} and η_τ/η = {plans.RATIO:g}.")
    yield figure("sensitivity", "Trails for each value of each hyper-parameter")
    changed = {k: [repeated(shown, plans.paper, {k: value}) for value in values] for k, values, _ in plans.VARIED}
    if all(runs for groups in changed.values() for runs in groups):
        yield from findings.sensitivity(changed)


def budget_sensitivity(rows: Sequence[Row]) -> Iterable[str]:
    """Budget mode: what a user can still set."""
    shown = found(rows, plans.budget_sensitivity())
    if not shown:
        return
    yield "### What is left to set in budget mode (small ResNet)\n"
    yield text(
        "T0, λ and η_τ/η do not exist in it: T = τ, λ is solved for, and thresholds move at the learning rate. What a",
        "user can set is the learning rate, and how epochs are divided between learning and fine-tuning.",
    )
    rates = {f"learning rate {lr:.2g}": repeated(shown, plans.budget, {"lr": lr}) for lr in plans.LRS}
    splits = {
        f"epochs {e} + {a}": repeated(shown, plans.budget, {"epochs": e, "finetune_epochs": a}) for e, a in plans.SPLITS
    }
    yield from table(OUTCOME, [[said, *outcome(runs)] for said, runs in (rates | splits).items() if runs])
    epochs = f"{plans.EPOCHS['resnet']} + {plans.FINETUNE_EPOCHS['resnet']} epochs"
    yield text(f"The others stay at learning rate {plans.LR:g} and {epochs}.")
    yield figure("budget-sensitivity", "Accuracy against learning rate and division of epochs")
    if all(rates.values()) and all(splits.values()):
        yield from findings.budget_sensitivity(list(rates.values()), list(splits.values()))


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
