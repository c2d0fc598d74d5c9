"""What the ablations show, in words. Each sentence gives the numbers it speaks of, and says no more than they do."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean as mean
from typing import Any

import numpy as np

from benchmarks.ablations import plans
from benchmarks.ablations.runs import BINS
from benchmarks.rows import Row, mean_std, numbers
from benchmarks.tables import percent, text

FALLEN = 0.1  # share of the mean squared weight below which a layer has shrunk as a whole


def regulariser(l0: Sequence[Row], l2: Sequence[Row], none: Sequence[Row]) -> Iterable[str]:
    """Soft L0, L2 and none, each with several seeds."""
    kept, val = (
        [percent(mean(lasts(runs, key))) for runs in (l0, l2, none)] for key in ("kept", "val")
    )
    early = over_epochs(l0, "kept").mean(1)
    share = (1 - early[0]) / (1 - early[-1]) if early[-1] < 1 else 0.0
    yield text(f"""
        Soft L0: {percent(early[0])} % of the weights are left after the first epoch and {kept[0]} % in the end, so
        {100 * share:.0f} % of what is pruned goes in the first of {l0[0]["epochs"]} epochs. The paper sees an
        exponential schedule in such a curve. Here the learning rate, and that of the thresholds with it, also falls to
        zero along a cosine, and these runs do not tell the two apart. Hard-pruned and not fine-tuned, the network has
        {val[0]} % on the validation split.
    """)
    poorer = ahead(lasts(l0, "val"), lasts(l2, "val"))
    shrunk = sum(growth < FALLEN for growth in growths(l2))
    yield text(
        f"L2: {kept[1]} % stay above the thresholds, with {val[1]} % on the validation split, less than with soft L0",
        f"in {poorer}. The paper also finds good sparsity and poor accuracy, and says that weights fall together:",
        f"here the mean squared weight of the layer ends below {FALLEN:g} of its start in {shrunk} of {len(l2)} runs.",
    )
    yield text(f"""
        None: the loss alone moves thresholds, and {kept[2]} % of the weights stay, with {val[2]} % on the validation
        split. The paper has "a modest sparsity of 94 %" after a hundred epochs, and does not say whether that is what
        was pruned or what was kept.
    """)


def gradient(kinds: Mapping[str, Sequence[Row]]) -> Iterable[str]:
    """Each weight gradient with several seeds."""
    third = max(len(kinds["4"][0]["epochs_seen"]) // 3, 1)
    courses = []
    for kind, runs in kinds.items():
        kept = over_epochs(runs, "kept").mean(1)
        courses.append(f"with ({kind}) from {percent(kept[third - 1])} to {percent(kept[-1])} %")
    yield text(
        f"From epoch {third} to the last the kept fraction goes {', '.join(courses)}. The learning rate falls to zero",
        "along a cosine in all of these runs, which flattens every one of these curves.",
    )
    plain = kinds["4"]
    for kind in (kind for kind in kinds if kind != "4"):
        own = kinds[kind]
        more, less = (
            ahead(lasts(own, "kept"), lasts(plain, "kept")),
            ahead(lasts(plain, "val"), lasts(own, "val")),
        )
        yield text(
            f"({kind}) beside (4): more weights are kept in the end in {more}, validation accuracy is lower in {less},",
            f"the density at the threshold is lower in {ahead(densities(plain), densities(own))}. The mean squared",
            f"weight of the layer ends at {mean(growths(own)):.2g} times that of the start, with (4) at",
            f"{mean(growths(plain)):.2g} times.",
        )
    yield text(
        "The paper reports for (10) that a gap around the threshold ends pruning early. T = T0 · σ²_|w| is",
        f"at most {largest_width(plain):.1g} of τ in the layer here; the next section has wider transitions.",
    )


def gap(groups: Mapping[float, Mapping[str, Sequence[Row]]]) -> Iterable[str]:
    """The weight gradients for each T0, from the narrowest transition to the widest, each with several seeds."""
    below = {
        t0: [mean(map(just_below, kinds[kind])) for kind in ("4", "10")]
        for t0, kinds in groups.items()
    }
    emptiest = min(below, key=lambda t0: below[t0][1] / max(below[t0][0], 1))
    plain, exact = below[emptiest]
    kept = [percent(mean(lasts(groups[emptiest][kind], "kept"))) for kind in ("4", "10")]
    yield text(f"""
        Beside (4), (10) leaves the fewest weights just below the threshold at T0 = {emptiest:g}: {exact:.0f} of them
        up to 5 % below √τ, where (4) leaves {plain:.0f}; {kept[1]} % of all weights are kept, with (4) {kept[0]} %.
    """)
    for kind in ("10", "20"):
        fewer = [
            f"{t0:g}"
            for t0, kinds in groups.items()
            if mean(densities(kinds[kind])) < mean(densities(kinds["4"]))
        ]
        more = [
            f"{t0:g}"
            for t0, kinds in groups.items()
            if mean(lasts(kinds[kind], "kept")) > mean(lasts(kinds["4"], "kept"))
        ]
        yield text(
            f"({kind}): the density at the threshold is below that of (4), on average over seeds, at {_at(fewer)};",
            f"more is kept than with (4) at {_at(more)}.",
        )


def seeds(modes: Mapping[str, Sequence[Row]]) -> Iterable[str]:
    """The trail over independent runs."""
    for mode, runs in modes.items():
        widest = 100 * over_epochs(runs, "val").std(1, ddof=1).max()
        _, reached = mean_std([row["reached"] for row in runs])
        _, test = mean_std([100 * row["test"] for row in runs])
        yield text(
            f"{mode.capitalize()} mode: over {len(runs)} seeds the standard deviation is at most {widest:.1f} points",
            f"at any epoch of the trail, {test:.1f} points after fine-tuning, and {reached:.2f}× in the compression.",
        )
    yield text(
        "In budget mode the compression is given, in paper mode it is an outcome. The paper shows the trail of ten",
        "runs of ResNet50 and calls their variability low; it gives no number.",
    )


def sensitivity(changed: Mapping[str, Sequence[Sequence[Row]]]) -> Iterable[str]:
    """Paper mode: one hyper-parameter at a time, from its smallest value to its largest, each with several seeds."""
    for key, values, name in plans.VARIED:
        reached, tests = (
            means(changed[key], "reached"),
            [100 * value for value in means(changed[key], "test")],
        )
        best = tests.index(max(tests))
        order = (
            "rises with each step" if reached == sorted(reached) else "does not rise with each step"
        )
        yield text(
            f"{name} from {values[0]:g} to {values[-1]:g}: the compression {order}, between {min(reached):.1f}× and",
            f"{max(reached):.1f}×; test accuracy is between {min(tests):.1f} and {max(tests):.1f} %, highest at",
            f"{values[best]:g}.",
        )
    yield text("""
        The paper calls λ the primary hyper-parameter for the sparsity, and says that any η_τ/η from 1e-7 to 1e-5 works
        and that T0 = 1e-3 served all its networks. Its runs on ImageNet have 25 to 101 epochs in all and a λ of their
        own for each network. The range of η_τ/η tested here overlaps with the paper's only from 1e-6 to 1e-5, at one λ
        and with far fewer steps, so these runs do not speak against it.
    """)


def budget_sensitivity(
    rates: Mapping[str, Sequence[Row]], splits: Mapping[str, Sequence[Row]]
) -> Iterable[str]:
    """Budget mode: learning rates and divisions of epochs, with several seeds each."""
    reached = [row["reached"] for runs in (*rates.values(), *splits.values()) for row in runs]
    yield text(
        f"The compression is {min(reached):.1f}× to {max(reached):.1f}× in all of these runs."
    )
    for what, groups in (("learning rates", rates), ("divisions of the epochs", splits)):
        tests = {name: 100 * mean(row["test"] for row in runs) for name, runs in groups.items()}
        best, worst = (chosen(tests, key=lambda name: tests[name]) for chosen in (max, min))
        yield text(
            f"Among the {what}, test accuracy is highest with {best}, {tests[best]:.1f} %, and lowest with {worst},",
            f"{tests[worst]:.1f} %.",
        )


def ahead(more: Sequence[float], less: Sequence[float]) -> str:
    """In how many seeds one is above the other."""
    pairs = list(zip(more, less, strict=False))
    return f"{sum(a > b for a, b in pairs)} of {len(pairs)} seeds"


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


def largest_width(runs: Sequence[Row]) -> float:
    """An upper bound of T / τ in the layer; σ²_|w| is below the mean of w²."""
    return max(row["t0"] * row["before"]["mean_square"] / row["layer"]["tau"] for row in runs)


def densities(runs: Sequence[Row]) -> list[float]:
    """At the threshold, over all kernels, of each run."""
    return [at_threshold(row["kernels"]) for row in runs]


def at_threshold(seen: Row) -> float:
    """Density of weights at the threshold / around it; 1 where nothing is around."""
    counts, away = numbers(seen["about_threshold"]), np.abs((BINS[:-1] + BINS[1:]) / 2 - 1)
    at, around = away < 0.05, (away > 0.15) & (away < 0.5)
    beside = counts[around].mean()
    return float(counts[at].mean() / beside) if beside else 1.0


def just_below(row: Row) -> float:
    """How many weights of a run are pruned by less than a twentieth of √τ."""
    return float(
        numbers(row["kernels"]["about_threshold"])[(BINS[:-1] > 0.94) & (BINS[1:] < 1.01)].sum()
    )


def _at(values: Sequence[str]) -> str:
    return f"T0 = {', '.join(values)}" if values else "no T0"
