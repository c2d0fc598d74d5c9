"""Compute what the results page says about the ablations from their rows."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.ablations import plans
from benchmarks.ablations.runs import BINS
from benchmarks.rows import Row, find_repetitions, find_rows, group_by, parse_numbers
from ltp_pipeline.settings.schema import TrainSettings

SHRUNK = 0.1  # fraction of its mean squared weight below which a layer has shrunk as a whole

Facts = dict[str, Any]
Runs = Sequence[Row]  # runs that differ in the seed alone


def collect_ablations(rows: Sequence[Row]) -> Facts | None:
    """Return the facts of each ablation by its name; None for what has no rows."""
    if not rows:
        return None
    collectors: Mapping[str, Callable[[Sequence[Row]], Facts | None]] = {
        "dense": _collect_dense,
        "regularizer": _collect_regularizers,
        "gradient": _collect_gradients,
        "gap": _collect_gaps,
        "trail": _collect_trails,
        "sensitivity": _collect_sensitivity,
        "budget": _collect_budget,
    }
    return {"plans": plans, **{name: collect(rows) for name, collect in collectors.items()}}


def _collect_dense(rows: Sequence[Row]) -> Facts | None:
    """Return size and accuracy of the dense networks."""
    runs = find_rows(rows, plans.iter_dense_runs())
    if not runs:
        return None
    return {
        "num_elements": runs[0]["elements"],
        "num_images": runs[0]["train_samples"],
        "steps_per_epoch": runs[0]["train_samples"] // TrainSettings().batch_size,
        "test": _list_percents(runs, "test"),
        "val": _list_percents(runs, "val"),
    }


def _collect_regularizers(rows: Sequence[Row]) -> Facts | None:
    """Compare no regularizer, L2 and soft L0."""
    runs = find_rows(rows, plans.iter_regularizer_runs())
    if not runs:
        return None
    kinds = group_by(runs, "regulariser")
    facts: Facts = {
        "epochs": runs[0]["epochs"],
        "kinds": {kind: _describe_runs(own) for kind, own in kinds.items()},
    }
    if set(kinds) == set(plans.REGULARIZERS):
        fractions = values_by_epoch(kinds["l0"], "kept").mean(1)
        facts["first_epoch_fraction"] = _first_fraction(fractions)
        facts["l2_is_less_accurate"] = count_above(
            last_values(kinds["l0"], "val"), last_values(kinds["l2"], "val")
        )
        shrunk = [growth < SHRUNK for growth in layer_growths(kinds["l2"])]
        facts["l2_has_shrunk"] = (sum(shrunk), len(shrunk))
    return facts


def _collect_gradients(rows: Sequence[Row]) -> Facts | None:
    """Compare the gradients of the weights by equations (4), (10) and (20)."""
    runs = find_rows(rows, plans.iter_gradient_runs())
    if not runs:
        return None
    kinds = group_by(runs, "weight_gradient")
    facts: Facts = {"kinds": {kind: _describe_runs(own) for kind, own in kinds.items()}}
    if set(kinds) == set(plans.GRADIENTS):
        approximate = kinds["4"]
        facts["comparisons"] = {
            kind: {
                "keeps_more": count_above(
                    last_values(own, "kept"), last_values(approximate, "kept")
                ),
                "is_less_accurate": count_above(
                    last_values(approximate, "val"), last_values(own, "val")
                ),
                "has_lower_density": count_above(
                    _threshold_densities(approximate), _threshold_densities(own)
                ),
            }
            for kind, own in kinds.items()
            if own is not approximate
        }
        facts["widest_transition"] = largest_width(approximate)
    return facts


def _collect_gaps(rows: Sequence[Row]) -> Facts | None:
    """Compare the gradients of the weights for several widths of the sigmoid's transition."""
    runs = find_rows(rows, plans.iter_gap_runs())
    if not runs:
        return None
    groups = {t0: group_by(own, "weight_gradient") for t0, own in group_by(runs, "t0").items()}
    facts: Facts = {
        "groups": {
            t0: {kind: _describe_runs(own) for kind, own in kinds.items()}
            for t0, kinds in groups.items()
        }
    }
    if all(set(kinds) == set(plans.GRADIENTS) for kinds in groups.values()):
        facts["clearest_t0"] = min(groups, key=lambda t0: _gap_ratio(groups[t0]))
    return facts


def _collect_trails(rows: Sequence[Row]) -> Facts | None:
    """Measure how far the trails of independent runs lie apart."""
    runs = find_rows(rows, plans.iter_seed_runs())
    if not runs:
        return None
    modes = {}
    for mode, own in group_by(runs, "mode").items():
        val = 100 * values_by_epoch(own, "val")
        modes[mode] = {
            "compression": own[0].get("compression"),
            "pull": own[0].get("pull"),
            "epochs": [seen["epoch"] for seen in own[0]["epochs_seen"]],
            "compressions": (1 / values_by_epoch(own, "kept")).tolist(),
            "val": val.tolist(),
            "reached": [row["reached"] for row in own],
            "test": _list_percents(own, "test"),
            "largest_std": float(val.std(1, ddof=1).max()) if len(own) > 1 else None,
        }
    return {"modes": modes}


def _collect_sensitivity(rows: Sequence[Row]) -> Facts | None:
    """Vary one hyper-parameter of paper mode at a time."""
    runs = find_rows(rows, plans.iter_sensitivity_runs())
    if not runs:
        return None
    parameters = []
    for key, values, name in plans.VARIED:
        outcomes = _collect_outcomes(
            {
                f"{name} = {value:.3g}": find_repetitions(runs, plans.make_paper_plan, {key: value})
                for value in values
            }
        )
        reached = [fmean(outcome["reached"]) for outcome in outcomes.values()]
        parameters.append({"name": name, "outcomes": outcomes, "rises": reached == sorted(reached)})
    return {"parameters": parameters}


def _collect_budget(rows: Sequence[Row]) -> Facts | None:
    """Vary what a user can set in budget mode: the learning rate and the division of the epochs."""
    runs = find_rows(rows, plans.iter_budget_runs())
    if not runs:
        return None
    rates = {
        f"learning rate {lr:.2g}": find_repetitions(runs, plans.make_budget_plan, {"lr": lr})
        for lr in plans.LRS
    }
    splits = {
        f"epochs {learn} + {finetune}": find_repetitions(
            runs, plans.make_budget_plan, {"epochs": learn, "finetune_epochs": finetune}
        )
        for learn, finetune in plans.SPLITS
    }
    return {"outcomes": _collect_outcomes(rates | splits)}


def _collect_outcomes(groups: Mapping[str, Runs]) -> dict[str, Facts]:
    """Return compression and accuracy before and after fine-tuning of each group that has runs."""
    return {
        name: {
            "reached": [row["reached"] for row in runs],
            "val": _last_percents(runs, "val"),
            "test": _list_percents(runs, "test"),
        }
        for name, runs in groups.items()
        if runs
    }


def _describe_runs(runs: Runs) -> Facts:
    """Return what the tables of regularizers and gradients show, a list over seeds each."""
    return {
        "pull": runs[0]["pull"],
        "l2": runs[0].get("l2"),
        "first_kept": (100 * values_by_epoch(runs, "kept")[0]).tolist(),
        "kept": _last_percents(runs, "kept"),
        "train": _last_percents(runs, "train"),
        "val": _last_percents(runs, "val"),
        "test": _list_percents(runs, "test"),
        "growth": layer_growths(runs),
        "density": _threshold_densities(runs),
        "layer_density": [threshold_density(row["layer"]) for row in runs],
        "num_below": [count_below_threshold(row) for row in runs],
        "came": [100 * row["kernels"]["came"] for row in runs],
        "went": [100 * row["kernels"]["went"] for row in runs],
    }


def count_above(values: Sequence[float], others: Sequence[float]) -> tuple[int, int]:
    """Return in how many pairs the first value is larger, and the number of pairs."""
    pairs = list(zip(values, others, strict=False))
    return sum(value > other for value, other in pairs), len(pairs)


def values_by_epoch(runs: Runs, key: str) -> "np.ndarray[Any, Any]":
    """Return a measurement of each epoch and run, of shape (epochs, runs)."""
    return np.array([[seen[key] for seen in row["epochs_seen"]] for row in runs]).T


def last_values(runs: Runs, key: str) -> list[float]:
    """Return a measurement of the last epoch of each run."""
    return [float(value) for value in values_by_epoch(runs, key)[-1]]


def layer_growths(runs: Runs) -> list[float]:
    """Return the mean squared weight of the watched layer at the end, relative to the start."""
    return [row["epochs_seen"][-1]["mean_square"] / row["before"]["mean_square"] for row in runs]


def largest_width(runs: Runs) -> float:
    """Return an upper bound of T / τ in the watched layer; σ²_|w| is below the mean of w²."""
    widths = (row["t0"] * row["before"]["mean_square"] / row["layer"]["tau"] for row in runs)
    return float(max(widths))


def threshold_density(seen: Row) -> float:
    """Return the density of weights at the threshold relative to the density around it.

    Weights within 5 % of √τ are compared with those from 15 % to 50 % away. The density is 1 if
    there are no weights around.
    """
    counts = parse_numbers(seen["about_threshold"])
    distances = np.abs((BINS[:-1] + BINS[1:]) / 2 - 1)
    around = counts[(distances > 0.15) & (distances < 0.5)].mean()
    return float(counts[distances < 0.05].mean() / around) if around else 1.0


def count_below_threshold(row: Row) -> float:
    """Return how many weights of a run lie up to 5 % below √τ."""
    counts = parse_numbers(row["kernels"]["about_threshold"])
    return float(counts[(BINS[:-1] > 0.94) & (BINS[1:] < 1.01)].sum())


def _first_fraction(fractions: "np.ndarray[Any, Any]") -> float:
    """Return the fraction of all pruning that the first epoch does; 0 if nothing is pruned."""
    first, last = float(fractions[0]), float(fractions[-1])
    return (1 - first) / (1 - last) if last < 1 else 0.0


def _threshold_densities(runs: Runs) -> list[float]:
    """Return the density at the threshold over all layers of each run."""
    return [threshold_density(row["kernels"]) for row in runs]


def _gap_ratio(kinds: Mapping[str, Runs]) -> float:
    """Return how many weights (10) leaves just below the threshold, relative to (4)."""
    exact = fmean(map(count_below_threshold, kinds["10"]))
    return exact / max(fmean(map(count_below_threshold, kinds["4"])), 1)


def _list_percents(runs: Runs, key: str) -> list[float]:
    """Return a fraction of each run in percent."""
    return [100 * row[key] for row in runs]


def _last_percents(runs: Runs, key: str) -> list[float]:
    """Return a fraction of the last epoch of each run in percent."""
    return [100 * value for value in last_values(runs, key)]
