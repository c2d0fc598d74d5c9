"""What the ablations show, in words: where our outcome agrees with the paper's, and where it does not."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.ablations.runs import BINS
from benchmarks.plots import Row, numbers
from benchmarks.tables import percent, text


def regulariser(l0: Row, l2: Row, none: Row) -> Iterable[str]:
    """None, L2 and soft L0."""
    lasts = [row["epochs_seen"][-1] for row in (l0, l2, none)]
    kept, val = ([percent(last[key]) for last in lasts] for key in ("kept", "val"))
    shrunk = lasts[1]["mean_square"] / l2["before"]["mean_square"]
    yield text(f"""
        As in the paper, it is the regulariser that raises thresholds: soft L0 keeps {kept[0]} % of the weights, without
        one {kept[2]} % stay. Soft L0 prunes fast at first and ever more slowly later, with no schedule given, and
        leaves the scale of weights alone. L2 keeps {kept[1]} %, by another way: weights fall together, here to
        {shrunk:.2g} of their mean square, as BatchNormalization lets them; the kept fraction goes up and down on the
        way, and the training loss ends at {lasts[1]["loss"]:.2f} against {lasts[0]["loss"]:.2f}.
    """)
    yield text(f"""
        Unlike in the paper, L2 does not end with a worse network: hard-pruned, {val[1]} % on the validation split
        against {val[0]} % with soft L0, which is no difference on so few images. And where the paper prunes 94 % in a
        hundred epochs without a regulariser, {percent(1 - lasts[2]["kept"])} % were pruned here. Conjecture: both
        because the runs are short. The fall of the weights ends with the learning rate, and thresholds that only the
        loss moves need many steps.
    """)


def gradient(plain: Row, exact: Row) -> Iterable[str]:
    """Weight gradient by (4) and by (10)."""
    density = [at_threshold(row["layer"]["about_threshold"]) for row in (plain, exact)]
    kept = [[percent(seen["kept"]) for seen in row["epochs_seen"]] for row in (plain, exact)]
    half = len(kept[0]) // 2
    yield text(f"""
        As in the paper, (10) drives weights away from the threshold and pruning stalls: the density at the threshold
        falls to {density[1]:.2f} ({density[0]:.2f} with (4)), and from epoch {half} to the last the kept fraction goes
        from {kept[1][half - 1]} to {kept[1][-1]} %, with (4) from {kept[0][half - 1]} to {kept[0][-1]} %.
    """)
    yield text("""
        Unlike in the paper's plot, the gap is no empty band, and with (4) hardly any weight crosses the threshold by
        itself: the points stay on the diagonal. Conjecture: the network starts out trained on the very images and takes
        a few hundred steps, so weights have little reason and time to move. What (10) moves, it throws far.
    """)


def seeds(budget: Sequence[Row], paper: Sequence[Row]) -> Iterable[str]:
    """The trail over independent runs."""
    spreads = [widest([row["epochs_seen"] for row in runs], "val") for runs in (budget, paper)]
    reached = np.std([row["reached"] for row in paper])
    yield text(f"""
        As in the paper, runs differ little: the standard deviation over seeds is at most {100 * spreads[0]:.1f} points
        at any epoch in budget mode and {100 * spreads[1]:.1f} in paper mode, part of which is the validation split of
        few images. In budget mode the compression is the same in every run, because it is given; in paper mode it is an
        outcome, and spreads by {reached:.2f}×.
    """)


def sensitivity(changed: Mapping[str, Sequence[Row]]) -> Iterable[str]:
    """Paper mode: one hyper-parameter at a time, from its smallest value to its largest."""
    pull, ratio = ([f"{row['reached']:.1f}×" for row in changed[key]] for key in ("pull", "threshold_lr_ratio"))
    t0 = [row["reached"] for row in changed["t0"]]
    first = [f"{1 / changed['pull'][-1]['epochs_seen'][i]['kept']:.1f}×" for i in (0, -1)]
    yield text(f"""
        λ decides the compression, as in the paper: {pull[0]} to {pull[-1]} over two decades. T0 matters less: four
        decades of it move the compression between {min(t0):.1f}× and {max(t0):.1f}×.
    """)
    yield text(f"""
        Unlike in the paper, where any η_τ/η from 1e-7 to 1e-5 would do, it matters here as much as λ does: {ratio[0]}
        at 1e-5, {ratio[-1]} two decades above. Conjecture: in so few steps thresholds do not come to rest, and how far
        they get is a matter of speed, the product of both. Most is pruned in the first epoch, when thresholds leave
        zero, where squared weights are densest: with the largest λ the network stands at {first[0]} after it, of
        {first[1]} in the end, and accuracy falls first and recovers later.
    """)


def budget_sensitivity(rates: Sequence[Row], splits: Sequence[Row]) -> Iterable[str]:
    """Budget mode: from the smallest learning rate to the largest, and the divisions of epochs."""
    tests = [percent(row["test"]) for row in rates]
    divided = [100 * row["test"] for row in splits]
    yield text(f"""
        The compression is met whatever is set. Accuracy follows the learning rate: {tests[0]} % at the smallest,
        {tests[-1]} % at the largest. Conjecture: in a few hundred steps, small rates leave weights no time to take over
        from those that were pruned; longer training would want smaller ones. How epochs are divided moves it by
        {max(divided) - min(divided):.1f} points; without any fine-tuning it is {divided[-1]:.1f} %.
    """)


def widest(trails: Sequence[Sequence[Row]], key: str) -> float:
    """Largest standard deviation of any epoch."""
    return float(np.array([[seen[key] for seen in trail] for trail in trails]).std(0).max())


def at_threshold(counts: Sequence[int]) -> float:
    """Density of weights at the threshold / around it; 1 where nothing is around."""
    away = np.abs((BINS[:-1] + BINS[1:]) / 2 - 1)
    at, around = away < 0.05, (away > 0.15) & (away < 0.5)
    beside = np.asarray(counts)[around].mean()
    return float(np.asarray(counts)[at].mean() / beside) if beside else 1.0


def crossed(layer: Mapping[str, Any]) -> tuple[float, float]:
    """Share of the kept weights that began below the threshold, and of the pruned ones that began above."""
    before, after = (np.square(numbers(layer[key])) > layer["tau"] for key in ("before", "after"))
    return float((~before[after]).mean()) if after.any() else 0.0, float(before[~after].mean())
