"""What the ablations show, in words: where our outcome agrees with the paper's, and where it does not."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean as mean
from typing import Any

import numpy as np

from benchmarks.ablations.runs import BINS
from benchmarks.rows import Row, numbers
from benchmarks.tables import percent, text


def regulariser(l0: Sequence[Row], l2: Sequence[Row], none: Sequence[Row]) -> Iterable[str]:
    """None, L2 and soft L0, each with several seeds."""
    kept, val = ([percent(mean(lasts(runs, key))) for runs in (l0, l2, none)] for key in ("kept", "val"))
    first = percent(mean(row["epochs_seen"][0]["kept"] for row in l0))
    yield text(f"""
        As in the paper, soft L0 prunes fast at first and ever more slowly later, with no schedule given: {first} % of
        the weights are left after the first epoch, {kept[0]} % in the end, and the scale of weights stays. Hard-pruned
        to that, with no fine-tuning, the network has {val[0]} % on the validation split.
    """)
    fallen = " and ".join(f"{g:.0e}" for g in growths(l2))
    yield text(f"""
        As in the paper, L2 prunes and ruins: weights fall together, which BatchNormalization lets them do without a
        word from the loss, here to {fallen} of their mean square; {kept[1]} % stay above the thresholds, and
        {val[1]} % accuracy is left.
    """)
    yield text(f"""
        Without a regulariser nothing but the loss moves thresholds: {kept[2]} % stay. The paper's text says "a modest
        sparsity of 94 %" after a hundred epochs, of which it is not clear whether it means what was pruned or what was
        kept; these are {none[0]["epochs"]} epochs.
    """)


def gradient(plain: Sequence[Row], exact: Sequence[Row]) -> Iterable[str]:
    """Weight gradient by (4) and by (10), each with several seeds."""
    third = plain[0]["epochs"] // 3
    kept = [[percent(mean(seen)) for seen in over_epochs(runs, "kept")] for runs in (plain, exact)]
    val = [percent(mean(lasts(runs, "val"))) for runs in (plain, exact)]
    grown = [mean(growths(runs)) for runs in (plain, exact)]
    yield text(f"""
        As in the paper, pruning stalls with (10): from epoch {third} to the last the kept fraction goes from
        {kept[1][third - 1]} to {kept[1][-1]} %, with (4) from {kept[0][third - 1]} to {kept[0][-1]} %, and accuracy
        ends at {val[1]} % instead of {val[0]} %. What (10) moves it throws far: the mean square of the layer grows to
        {grown[1]:.0f} times that of the start (with (4) {grown[0]:.1f}).
    """)
    density = [mean(at_threshold(row["kernels"]) for row in runs) for runs in (plain, exact)]
    first = plain[0]
    largest = first["t0"] * first["before"]["mean_square"]  # T: σ²_|w| is below mean w²
    narrow = int(first["layer"]["tau"] / largest) // 1000 * 1000
    yield text(f"""
        The gap is not seen in these runs: the density at the threshold over all kernels, the measure that was fixed
        before they were made, is {density[0]:.2f} with (4) and {density[1]:.2f} with (10). T is below 1/{narrow} of τ
        in the layer, and the sigmoid's transition far narrower than a bin. The next section has wider ones.
    """)
    came, went = (100 * mean(shares) for shares in zip(*map(crossed, plain), strict=True))
    yield text(f"""
        As in the paper's plot, weights cross the threshold by themselves with (4): of all kernels, {came:.0f} % of the
        kept weights began below it and {went:.1f} % of the pruned ones above.
    """)


def gap(groups: Mapping[float, Mapping[str, Sequence[Row]]]) -> Iterable[str]:
    """Both weight gradients for each T0, from the narrowest transition to the widest, each with several seeds."""
    clear = 0.01  # T0 at which the figure shows it best
    below = [mean(just_below(row["kernels"]) for row in groups[clear][kind]) for kind in ("4", "10")]
    kept = [percent(mean(lasts(groups[clear][kind], "kept"))) for kind in ("4", "10")]
    said = ", ".join(f"{mean(at_threshold(row['kernels']) for row in g['10']):.2f}" for g in groups.values())
    yield text(f"""
        As in the paper, (10) makes a gap, and pruning ends early: with T0 = {clear:g}, {below[1]:.0f} weights end up to
        5 % below √τ where (4) leaves {below[0]:.0f}, and {kept[1]} % of all weights are kept instead of {kept[0]} %.
        With T0 = 0.001, the paper's value and that of the runs above, the transition is narrower than a bin; with T0 =
        1 it is so wide that weights are still left in it.
    """)
    yield text(f"""
        Before these runs, the density at the threshold with (10) was expected to fall as T0 grows. It does so only at
        first ({said} from T0 = 0.001 to 1), and is below that of (4) throughout: the gap lies under the threshold, and
        a window around it also holds what was thrown over it. The number of weights under it was added after the figure
        had been seen.
    """)


def seeds(budget: Sequence[Row], paper: Sequence[Row]) -> Iterable[str]:
    """The trail over independent runs."""
    spreads = [over_epochs(runs, "val").std(1).max() for runs in (budget, paper)]
    reached = np.std([row["reached"] for row in paper])
    yield text(f"""
        As in the paper, runs differ little: the standard deviation over seeds is at most {100 * spreads[0]:.1f} points
        at any epoch in budget mode and {100 * spreads[1]:.1f} in paper mode. In budget mode the compression is the same
        in every run, because it is given; in paper mode it is an outcome, and spreads by {reached:.2f}×.
    """)


def sensitivity(changed: Mapping[str, Sequence[Sequence[Row]]]) -> Iterable[str]:
    """Paper mode: one hyper-parameter at a time, from its smallest value to its largest, each with several seeds."""
    reached = {key: means(groups, "reached") for key, groups in changed.items()}
    pull, ratio = ([f"{value:.1f}×" for value in reached[key]] for key in ("pull", "threshold_lr_ratio"))
    t0 = reached["t0"]
    first = [f"{mean(1 / row['epochs_seen'][i]['kept'] for row in changed['pull'][-1]):.1f}×" for i in (0, -1)]
    yield text(f"""
        λ decides the compression, as in the paper: {pull[0]} to {pull[-1]} over two decades. T0 matters less: four
        decades of it move the compression between {min(t0):.1f}× and {max(t0):.1f}×; at both ends accuracy suffers.
    """)
    yield text(f"""
        Unlike in the paper, where any η_τ/η from 1e-7 to 1e-5 would do, it matters here as much as λ does: {ratio[0]}
        at 1e-5, {ratio[-1]} two decades above. Conjecture: in so few steps thresholds do not come to rest, and how far
        they get is a matter of speed, the product of both. Most is pruned in the first epoch, when thresholds leave
        zero, where squared weights are densest: with the largest λ the network stands at {first[0]} after it, of
        {first[1]} in the end, and accuracy falls first and recovers later.
    """)


def budget_sensitivity(rates: Sequence[Sequence[Row]], splits: Sequence[Sequence[Row]]) -> Iterable[str]:
    """Budget mode: from the smallest learning rate to the largest, and the divisions of epochs, with several seeds."""
    tests, divided = ([100 * value for value in means(groups, "test")] for groups in (rates, splits))
    yield text(f"""
        The compression is met whatever is set. Accuracy follows the learning rate: {tests[0]:.1f} % at the smallest,
        {tests[-1]:.1f} % at the largest. Conjecture: in a few hundred steps, small rates leave weights no time to take
        over from those that were pruned; longer training would want smaller ones. How epochs are divided moves it by
        {max(divided) - min(divided):.1f} points; without any fine-tuning it is {divided[-1]:.1f} %.
    """)


def means(groups: Sequence[Sequence[Row]], key: str) -> list[float]:
    """Of each group of runs that differ in the seed alone."""
    return [mean(row[key] for row in runs) for runs in groups]


def over_epochs(runs: Sequence[Row], key: str) -> "np.ndarray[Any, Any]":
    """What was seen at each epoch: epochs × runs."""
    return np.array([[seen[key] for seen in row["epochs_seen"]] for row in runs]).T


def lasts(runs: Sequence[Row], key: str) -> list[float]:
    """What was seen at the last epoch of each run."""
    return [float(value) for value in over_epochs(runs, key)[-1]]


def growths(runs: Sequence[Row]) -> list[float]:
    """Mean square of the layer in the end / that of the start, of each run."""
    return [row["epochs_seen"][-1]["mean_square"] / row["before"]["mean_square"] for row in runs]


def at_threshold(seen: Row) -> float:
    """Density of weights at the threshold / around it; 1 where nothing is around."""
    counts, away = np.asarray(seen["about_threshold"]), np.abs((BINS[:-1] + BINS[1:]) / 2 - 1)
    at, around = away < 0.05, (away > 0.15) & (away < 0.5)
    beside = counts[around].mean()
    return float(counts[at].mean() / beside) if beside else 1.0


def just_below(seen: Row) -> float:
    """How many weights are pruned by less than a twentieth of √τ."""
    return float(np.asarray(seen["about_threshold"])[(BINS[:-1] > 0.94) & (BINS[1:] < 1.01)].sum())


def crossed(row: Row) -> tuple[float, float]:
    """Share of the kept weights that began below the threshold, and of the pruned ones that began above."""
    before, after = (np.square(numbers(row["kernels"][key])) > 1 for key in ("before", "after"))
    return float((~before[after]).mean()) if after.any() else 0.0, float(before[~after].mean())
