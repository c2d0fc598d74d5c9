"""The schedule of the study: rates first, then seeds; every row once."""

from typing import Any

import pytest

from benchmarks.study import schedule
from benchmarks.study.networks import NETWORKS, WEIGHTS


@pytest.fixture(autouse=True)
def few_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: NETWORKS[name] for name in ("mlp", "resnet")}
    monkeypatch.setattr(schedule, "NETWORKS", few)


def make_row(plan: dict[str, Any], val: float = 0.5) -> dict[str, Any]:
    return {**plan, "val": val, "test": val}


def measure_all(limit: int = 5_000, **values: Any) -> list[dict[str, Any]]:
    """Rows of a whole study whose accuracy depends on the rate alone."""
    rows: list[dict[str, Any]] = []
    keys: set[str] = set()
    while len(rows) < limit:
        plans = (p for p in schedule.iter_plans(rows) if schedule.plan_key(p) not in keys)
        plan = next(plans, None)
        if plan is None:
            return rows
        keys.add(schedule.plan_key(plan))
        rates = sorted(NETWORKS[plan["network"]].rates)
        val = 0.8 if plan["lr"] == rates[1] else 0.7
        rows.append(make_row(plan, values.get(plan["method"], val)))
    raise AssertionError("the plan does not end")


def test_rates_come_before_everything_else():
    plan = next(schedule.iter_plans([]))
    assert (plan["cost"], plan["fraction"], plan["seed"]) == (*schedule.RATE_CELL, 0)


@pytest.mark.parametrize(("values", "chosen"), [((0.5, 0.6, 0.55), 0.1), ((0.6, 0.6, 0.5), 0.03)])
def test_next_rate_chooses_the_best_on_validation(values: tuple[float, ...], chosen: float):
    plan = {"network": "mlp", "cost": WEIGHTS, "fraction": 1 / 20, "method": "ltp", "seed": 0}
    plan["units"] = True
    rows = [
        make_row({**plan, "lr": rate}, value)
        for rate, value in zip((0.03, 0.1, 0.3), values, strict=True)
    ]
    if chosen == 0.03:  # an edge: the next rate outward is tried first
        assert schedule.next_rate(rows, "mlp", "ltp", units=True) == (0.01, None)
        rows.append(make_row({**plan, "lr": 0.01}, 0.1))
    assert schedule.next_rate(rows, "mlp", "ltp", units=True) == (chosen, 0.6)


def test_diverged_rows_count_as_worst():
    plan = {"network": "mlp", "cost": WEIGHTS, "fraction": 1 / 20, "method": "ltp", "seed": 0}
    plan["units"] = True
    rows = [make_row({**plan, "lr": 0.03}, 0.2), make_row({**plan, "lr": 0.1}, 0.3)]
    rows.append({**plan, "lr": 0.3, "val": None, "test": None})
    assert schedule.next_rate(rows, "mlp", "ltp", units=True) == (0.1, 0.3)


def test_rivals_on_normalized_networks_are_tried_in_both_forms():
    plan = {"network": "resnet", "cost": WEIGHTS, "fraction": 1 / 20, "method": "gradual"}
    rows = [
        make_row({**plan, "lr": lr, "units": False, "seed": 0}, val)
        for lr, val in ((0.03, 0.5), (0.1, 0.6), (0.3, 0.5))
    ]
    assert schedule.choose_training(rows, "resnet", "gradual") is None
    rows += [make_row({**row, "units": True}, row["val"] + 0.01) for row in rows]
    assert schedule.choose_training(rows, "resnet", "gradual") == {"lr": 0.1, "units": True}


def test_whole_plan_measures_every_method_with_its_seeds_in_every_cell():
    rows = measure_all(dense=0.9)
    for network in schedule.NETWORKS:
        cells, _ = schedule.cells_of(rows, network)
        assert len(cells) == len(NETWORKS[network].cells)
        for cost, fraction in cells:
            for method in ("ltp", "common", "gradual", "one-shot"):
                cell = schedule.find_rows(
                    rows, network=network, cost=cost, fraction=fraction, method=method
                )
                assert {1, 2, 3, 4, 5} <= {row["seed"] for row in cell}


def test_multiply_add_cells_become_harder_until_the_common_threshold_loses_visibly():
    rows = measure_all(dense=0.75, common=0.74)
    fractions = {r["fraction"] for r in rows if r["network"] == "resnet" and r["seed"] == 1}
    assert 0.0125 in fractions
