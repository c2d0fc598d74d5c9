"""Which rows of the plan come next, given the rows that are there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.study.methods import GATED_METHODS
from benchmarks.study.networks import MULTIPLY_ADDS, NETWORKS, WEIGHTS

Row = Mapping[str, Any]
RATE_SEED = 0
RATE_CELL = (WEIGHTS, 1 / 20)
SEEDS = (1, 2, 3, 4, 5)
FEWER_SEEDS = (1, 2, 3)
EVERYWHERE = ("one-shot", "gradual", "common", "ltp", "dense", "feather")
ON_TWO = ("ltp-former", "lamp-gradual", "st3", "acdc-ham")
METHODS = (*EVERYWHERE, "own-loop", *ON_TWO, "common-plain")
TWO = ("resnet", "mobilenet")
FEW = ("feather", *ON_TWO)
VISIBLE_LOSS = 0.02  # of accuracy; a cell of multiply-adds becomes harder until `common` loses it
MAX_RATES = 6
PLAN_KEYS = ("network", "cost", "fraction", "method", "lr", "units", "seed")
# Methods that are tried with the weights as the file has them and in the units of (R9).
IN_BOTH_FORMS = ("one-shot", "gradual", "feather")


def methods_of(network: str) -> tuple[str, ...]:
    """Return the methods that are measured on a network, in the order of the plan."""
    methods: tuple[str, ...] = EVERYWHERE
    if NETWORKS[network].has_images:
        methods += ("own-loop",)
    return methods + (ON_TWO if network in TWO else ())


def plan_key(plan: Mapping[str, Any]) -> str:
    """Return what identifies a row."""
    return json.dumps([plan[key] for key in PLAN_KEYS])


def find_rows(rows: Sequence[Row], **values: Any) -> list[Row]:
    """Return the rows with these values."""
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def forms_of(network: str, method: str) -> tuple[bool, ...]:
    """Return whether a method trains in the units of (R9), does not, or is tried both ways."""
    if method in GATED_METHODS:
        return (True,)
    if method in IN_BOTH_FORMS and NETWORKS[network].is_normalized:
        return (False, True)
    return (False,)


def next_rate(
    rows: Sequence[Row], network: str, method: str, units: bool
) -> tuple[float, float | None]:
    """Return a learning rate of a method, and its validation accuracy.

    The accuracy is None if the rate is to be tried. Otherwise the rate is the best one.
    """
    tried = {
        row["lr"]: -1.0 if row["val"] is None else row["val"]
        for row in find_rows(rows, **_rate_plan(network, method, units))
    }
    for rate in NETWORKS[network].rates:
        if rate not in tried:
            return rate, None
    best = max(tried, key=lambda rate: (tried[rate], -rate))
    if len(tried) < MAX_RATES and best == max(tried):
        return round(best * 3, 6), None
    if len(tried) < MAX_RATES and best == min(tried):
        return round(best / 3, 6), None
    return best, tried[best]


def choose_training(rows: Sequence[Row], network: str, method: str) -> dict[str, Any] | None:
    """Return the learning rate and units of a method on a network; None if not all are tried."""
    choices = []
    for units in forms_of(network, method):
        rate, accuracy = next_rate(rows, network, method, units)
        if accuracy is None:
            return None
        choices.append((accuracy, {"lr": rate, "units": units}))
    return max(choices, key=lambda choice: choice[0])[1]


def _rate_plan(network: str, method: str, units: bool) -> dict[str, Any]:
    """Return what the rows of a search for the rate have in common."""
    cost, fraction = RATE_CELL
    return {
        "network": network,
        "cost": cost,
        "fraction": fraction,
        "method": method,
        "units": units,
        "seed": RATE_SEED,
    }


def cells_of(rows: Sequence[Row], network: str) -> tuple[list[tuple[str, float]], Row | None]:
    """Return the cells of a network, and the plan of a row that decides the last one."""
    cells = []
    for cost, fraction in NETWORKS[network].cells:
        if cost == WEIGHTS:
            cells.append((cost, fraction))
            continue
        training = choose_training(rows, network, "common")
        dense = find_rows(rows, network=network, method="dense", seed=RATE_SEED)
        if training is None or not dense:
            continue
        original = max(row["val"] or 0 for row in dense)
        plan: dict[str, Any] = {"network": network, "cost": MULTIPLY_ADDS, "method": "common"}
        plan |= {**training, "seed": RATE_SEED}
        for harder in (fraction, fraction / 2, fraction / 4):
            decided = find_rows(rows, **plan, fraction=harder)
            if not decided:
                return cells, {**plan, "fraction": harder}
            fraction = harder
            if original - (decided[0]["val"] or 0) >= VISIBLE_LOSS:
                break
        cells.append((cost, fraction))
    return cells, None


def iter_plans(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield plans of rows that can be measured now, the most urgent first."""
    for network in NETWORKS:
        for method in methods_of(network):
            for units in forms_of(network, method):
                rate, accuracy = next_rate(rows, network, method, units)
                if accuracy is None:
                    yield {**_rate_plan(network, method, units), "lr": rate}
    for network in NETWORKS:
        _, deciding = cells_of(rows, network)
        if deciding is not None:
            yield dict(deciding)
    for seed in SEEDS:
        for method in METHODS:
            if method in FEW and seed not in FEWER_SEEDS:
                continue
            yield from _iter_cells(rows, method, seed)


def _iter_cells(rows: Sequence[Row], method: str, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the plans of a method and a seed in all cells."""
    for network in NETWORKS:
        plain = method == "common-plain"
        if not plain and method not in methods_of(network):
            continue
        training = choose_training(rows, network, "common" if plain else method)
        if training is None:
            continue
        cells, _ = cells_of(rows, network)
        if method == "dense":
            cells = [RATE_CELL]  # nothing is pruned, so one row stands for all cells
        for cost, fraction in cells:
            if plain and cost != MULTIPLY_ADDS:
                continue
            yield {
                "network": network,
                "cost": cost,
                "fraction": fraction,
                "method": method,
                **training,
                "seed": seed,
            }
