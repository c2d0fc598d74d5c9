"""Which rows of the plan come next, given the rows that are there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.study.networks import MULTIPLY_ADDS, NETWORKS, WEIGHTS

Row = Mapping[str, Any]
RATE_SEED = 0
RATE_CELL = (WEIGHTS, 1 / 20)
SEEDS = (1, 2, 3, 4, 5)
FEWER_SEEDS = (1, 2, 3)
EVERYWHERE = ("one-shot", "gradual", "common", "ltp", "dense", "feather")
ON_TWO = ("ltp-former", "lamp-gradual", "st3", "acdc-ham")
TWO = ("resnet", "mobilenet")
FEW = ("feather", *ON_TWO)
VISIBLE_LOSS = 0.02  # of accuracy; a cell of multiply-adds becomes harder until `common` loses it
MAX_RATES = 6
PLAN_KEYS = ("network", "cost", "fraction", "method", "lr", "seed")


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


def next_rate(rows: Sequence[Row], network: str, method: str) -> tuple[float | None, bool]:
    """Return a learning rate of a method on a network, and whether it is chosen.

    If it is not chosen it is to be tried. It is None if rows of rates are under way.
    """
    cost, fraction = RATE_CELL
    tried = {
        row["lr"]: -1.0 if row["val"] is None else row["val"]
        for row in find_rows(
            rows, network=network, method=method, seed=RATE_SEED, cost=cost, fraction=fraction
        )
    }
    for rate in NETWORKS[network].rates:
        if rate not in tried:
            return rate, False
    best = max(tried, key=lambda rate: (tried[rate], -rate))
    if len(tried) < MAX_RATES and best == max(tried):
        return round(best * 3, 6), False
    if len(tried) < MAX_RATES and best == min(tried):
        return round(best / 3, 6), False
    return best, True


def cells_of(rows: Sequence[Row], network: str) -> tuple[list[tuple[str, float]], Row | None]:
    """Return the cells of a network, and the plan of a row that decides the last one."""
    cells = []
    for cost, fraction in NETWORKS[network].cells:
        if cost == WEIGHTS:
            cells.append((cost, fraction))
            continue
        rate, is_chosen = next_rate(rows, network, "common")
        dense = find_rows(rows, network=network, method="dense", seed=RATE_SEED)
        if not is_chosen or not dense:
            continue
        original = max(row["val"] or 0 for row in dense)
        plan: dict[str, Any] = {"network": network, "cost": MULTIPLY_ADDS, "method": "common"}
        plan |= {"lr": rate, "seed": RATE_SEED}
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
    cost, fraction = RATE_CELL
    for network in NETWORKS:
        for method in methods_of(network):
            rate, is_chosen = next_rate(rows, network, method)
            if not is_chosen:
                yield {
                    "network": network,
                    "cost": cost,
                    "fraction": fraction,
                    "method": method,
                    "lr": rate,
                    "seed": RATE_SEED,
                }
    for network in NETWORKS:
        _, deciding = cells_of(rows, network)
        if deciding is not None:
            yield dict(deciding)
    for seed in SEEDS:
        for method in (*EVERYWHERE, "own-loop", *ON_TWO, "common-plain"):
            if method in FEW and seed not in FEWER_SEEDS:
                continue
            yield from _iter_cells(rows, method, seed)


def _iter_cells(rows: Sequence[Row], method: str, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the plans of a method and a seed in all cells."""
    for network in NETWORKS:
        plain = method == "common-plain"
        if not plain and method not in methods_of(network):
            continue
        rate, is_chosen = next_rate(rows, network, "common" if plain else method)
        if not is_chosen:
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
                "lr": rate,
                "seed": seed,
            }
