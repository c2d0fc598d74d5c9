"""Facts about the ablations follow the rows: made-up rows that say the opposite change them."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks import ablation_facts, plots
from benchmarks.ablation_facts import collect_ablations
from benchmarks.ablations import plans
from benchmarks.ablations.runs import BINS
from tests.support import ablation_rows


def collect(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    facts = collect_ablations(rows)
    assert facts is not None
    return facts


def regularizer_rows(**changed: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        ablation_rows.row(plan, **changed.get(plan["regulariser"], {}))
        for plan in plans.iter_regularizer_runs()
    ]


def gradient_rows(**exact: Any) -> list[dict[str, Any]]:
    return [
        ablation_rows.row(plan, **(exact if plan["weight_gradient"] == "10" else {}))
        for plan in plans.iter_gradient_runs()
    ]


def test_collect_ablations_without_rows_returns_none() -> None:
    assert collect_ablations([]) is None


def test_collect_ablations_missing_ablation_is_none() -> None:
    facts = collect([row for row in ablation_rows.every() if row["mode"] != "budget"])
    assert facts["budget"] is None
    assert facts["sensitivity"] is not None


def test_collect_regularizers_computes_the_fraction_of_the_first_epoch() -> None:
    facts = collect(regularizer_rows(l0={"kept": (0.3, 0.2)}))["regularizer"]
    assert facts["first_epoch_fraction"] == pytest.approx(0.7 / 0.8)
    assert facts["kinds"]["l0"]["first_kept"] == pytest.approx([30.0] * 3)
    assert facts["kinds"]["l0"]["kept"] == pytest.approx([20.0] * 3)


@pytest.mark.parametrize(("val", "grown", "count"), [(0.3, 0.01, 3), (0.9, 1.0, 0)])
def test_collect_regularizers_counts_seeds_in_which_l2_is_worse(
    val: float, grown: float, count: int
) -> None:
    facts = collect(regularizer_rows(l2={"val": val, "grown": grown}))["regularizer"]
    assert facts["l2_is_less_accurate"] == (count, 3)
    assert facts["l2_has_shrunk"] == (count, 3)


@pytest.mark.parametrize(("kept", "val", "below", "count"), [(0.3, 0.7, 0, 3), (0.1, 0.9, 9, 0)])
def test_collect_gradients_compares_seed_by_seed(
    kept: float, val: float, below: int, count: int
) -> None:
    rows = gradient_rows(kept=(0.4, kept), val=val, below=below)
    comparisons = collect(rows)["gradient"]["comparisons"]
    assert set(comparisons["10"].values()) == {(count, 3)}
    assert set(comparisons["20"].values()) == {(0, 3)}


def test_collect_gradients_without_one_kind_compares_nothing() -> None:
    rows = [row for row in gradient_rows() if row["weight_gradient"] != "20"]
    assert "comparisons" not in collect(rows)["gradient"]


@pytest.mark.parametrize(("below", "expected"), [((90, 20), 0.1), ((20, 90), 0.001)])
def test_collect_gaps_finds_the_clearest_gap(below: tuple[int, int], expected: float) -> None:
    counts = dict(zip(plans.GAP_T0, below, strict=True))
    rows = [
        ablation_rows.row(
            plan, below=counts[plan["t0"]] if plan["weight_gradient"] == "10" else 100
        )
        for plan in plans.iter_gap_runs()
    ]
    facts = collect(rows)["gap"]
    assert facts["clearest_t0"] == expected
    assert list(facts["groups"]) == list(plans.GAP_T0)


def test_collect_trails_uses_sample_standard_deviations() -> None:
    rows = [
        ablation_rows.row(plans.make_budget_plan(seed), val=value, test=value)
        for seed, value in enumerate((0.80, 0.82))
    ]
    facts = collect(rows)["trail"]["modes"]["budget"]
    assert facts["largest_std"] == pytest.approx(2**0.5)
    assert facts["test"] == pytest.approx([80.0, 82.0])
    assert facts["compression"] == plans.COMPRESSION


@pytest.mark.parametrize("factor", [1, -1])
def test_collect_sensitivity_compression_rises_only_if_each_step_does(factor: int) -> None:
    rows = []
    for plan in plans.iter_sensitivity_runs():
        product = plan["pull"] * plan["t0"] * plan["threshold_lr_ratio"]
        rows.append(ablation_rows.row(plan, reached=100 + factor * math.log10(product)))
    parameters = collect(rows)["sensitivity"]["parameters"]
    assert len(parameters) == len(plans.VARIED)
    assert all(len(parameter["outcomes"]) == 3 for parameter in parameters)
    assert all(parameter["rises"] == (factor > 0) for parameter in parameters)


def test_collect_budget_keeps_settings_that_were_measured() -> None:
    rows = [ablation_rows.row(plans.make_budget_plan(seed, lr=0.1), test=0.7) for seed in (0, 1)]
    outcomes = collect(rows)["budget"]["outcomes"]
    assert list(outcomes) == ["learning rate 0.1"]
    assert outcomes["learning rate 0.1"]["test"] == pytest.approx([70.0, 70.0])


@pytest.mark.parametrize(
    ("filled", "density"), [(range(60), 1.0), ([*range(19), *range(21, 60)], 0.0)]
)
def test_threshold_density_compares_the_threshold_with_its_surroundings(
    filled: Sequence[int], density: float
) -> None:
    counts = [0] * (len(BINS) - 1)
    for i in filled:
        counts[i] = 5
    seen = {"about_threshold": " ".join(map(str, counts))}
    assert ablation_facts.threshold_density(seen) == pytest.approx(density)


def test_count_below_threshold_counts_the_two_bins_below() -> None:
    counts = [0] * (len(BINS) - 1)
    counts[18:21] = 3, 5, 7  # the threshold lies between the last two
    row = {"kernels": {"about_threshold": " ".join(map(str, counts))}}
    assert ablation_facts.count_below_threshold(row) == 5


def test_plots_have_a_name_for_every_kind_of_run() -> None:
    assert set(plots.KINDS) == set(plots.LINES) == set(plans.GRADIENTS)
    assert set(plots.REGULARIZERS) == set(plans.REGULARIZERS)
