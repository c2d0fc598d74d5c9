"""Differences, verdicts and pairs follow the rows."""

from typing import Any

import pytest

from benchmarks import comparison_facts
from benchmarks.comparison_facts import Cell, compare_scores
from benchmarks.restore_bn import EPOCHS


def block_rows(seed: int, single: float, blocks: float) -> list[dict[str, Any]]:
    where = {"cell": "resnet", "compression": 10, "seed": seed, "original": 0.9}
    in_blocks = {"block": "4x1", "test": blocks, "one-shot": 0.7, "one-shot-single": 0.8}
    unstructured = {"block": None, "test": single, "one-shot": None, "one-shot-single": None}
    return [{**where, **in_blocks}, {**where, **unstructured}]


def restored_rows(form: str, lr: float, tests: tuple[float | None, ...]) -> list[dict[str, Any]]:
    """A run for each test accuracy; None for one that failed."""
    where = {"original": 0.9, "compression": 10, **EPOCHS}
    rows = []
    for seed, test in enumerate(tests):
        measured = {"test": test} if test is None else {"test": test, "val": test}
        rows.append({"form": form, "lr": lr, "seed": seed, **measured, **where})
    return rows


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [({0: 81.0, 1: 82.1}, "level"), ({0: 89.0, 1: 89.1}, "ahead"), ({0: 70.0, 1: 70.1}, "behind")],
)
def test_compare_scores_interval_decides_the_verdict(
    scores: dict[int, float], verdict: str
) -> None:
    difference = compare_scores(scores, {0: 80.0, 1: 80.0})
    assert difference is not None
    assert difference.verdict == verdict


def test_compare_scores_pairs_by_seed() -> None:
    difference = compare_scores({0: 85.0, 1: 85.0, 2: 0.0}, {0: 86.0, 1: 88.0, 3: 0.0})
    assert difference is not None
    assert difference.mean == pytest.approx(-2.0)
    assert difference.interval == pytest.approx((-14.706, 10.706))


def test_compare_scores_single_seed_has_no_interval_and_no_verdict() -> None:
    difference = compare_scores({0: 85.0}, {0: 86.0})
    assert difference is not None
    assert difference.interval is None
    assert difference.verdict is None


def test_compare_scores_without_common_seeds_returns_none() -> None:
    assert compare_scores({0: 85.0}, {1: 86.0}) is None


def test_collect_cells_keeps_cells_of_the_defaults() -> None:
    row = {"cell": "mlp", "compression": 5, "seed": 0, "gain": 2.0, "gain_bound": "at least"}
    rows = [
        {**row, "method": "defaults", "original": 0.9, "test": 0.8, "one-shot": 0.7},
        {**row, "method": "gradual", "test": 0.75, "gain": None},
        {**row, "cell": "cnn", "method": "gradual", "test": 0.5, "gain": None},
    ]
    (cell,) = comparison_facts.collect_cells(rows)
    assert cell.network == "mlp"
    assert cell.is_chosen_on
    assert {method: scores[0] for method, scores in cell.scores.items()} == pytest.approx(
        {"original": 90.0, "ltp": 80.0, "one-shot": 70.0, "gradual": 75.0}
    )
    assert cell.gains == [("at least", 2.0)]


def test_count_verdicts_leaves_out_cells_without_interval() -> None:
    several = {"ltp": {0: 89.0, 1: 89.1}, "gradual": {0: 80.0, 1: 80.0}}
    cells = [
        Cell("mlp", 5, several),
        Cell("mlp", 20, {"ltp": {0: 89.0}, "gradual": {0: 80.0}}),
        Cell("cnn", 5, {"ltp": {0: 89.0, 1: 89.1}}),
    ]
    counts = comparison_facts.count_verdicts(cells, "gradual")
    assert counts == {"ahead": 1, "level": 0, "behind": 0}


def test_collect_claims_compares_with_global_magnitude() -> None:
    row = {"cell": "mobilenet", "pull": 10, "reached": 2.0, "original": 0.9}
    rows = [{**row, "seed": seed, "test": 0.8, "one-shot": 0.9} for seed in (0, 1)]
    (claim,) = comparison_facts.collect_claims(rows)
    assert claim["reached"] == [2.0, 2.0]
    assert claim["difference"].verdict == "behind"


def test_collect_blocks_pairs_both_methods_by_seed() -> None:
    rows = [*block_rows(0, 0.86, 0.85), *block_rows(1, 0.88, 0.85)]
    (cell,) = comparison_facts.collect_blocks(rows, [])
    assert cell["ltp"]["single"] == pytest.approx({0: 86.0, 1: 88.0})
    assert cell["ltp_difference"].mean == pytest.approx(-2.0)
    assert cell["ltp_difference"].interval == pytest.approx((-14.706, 10.706))
    assert cell["magnitude_difference"].mean == pytest.approx(-10.0)
    assert not cell["is_at_chance"]


def test_collect_blocks_missing_row_has_no_difference() -> None:
    (cell,) = comparison_facts.collect_blocks(block_rows(0, 0.86, 0.85)[:1], [])
    assert cell["ltp_difference"] is None
    assert cell["magnitude_difference"] is not None


def test_collect_blocks_baseline_at_chance_is_marked() -> None:
    rows = block_rows(0, 0.86, 0.85)
    rows[0]["one-shot"] = comparison_facts.CHANCE_LEVEL
    (cell,) = comparison_facts.collect_blocks(rows, [])
    assert cell["is_at_chance"]


def test_collect_blocks_latency_is_the_median_over_seeds() -> None:
    times = [("single", 0.8), ("single", 0.9), ("single", 0.7), ("4x1", 0.5)]
    speed = [
        {"run": f"resnet-10x-{seed}-{how}", "ratio": ratio}
        for seed, (how, ratio) in enumerate(times)
    ]
    (cell,) = comparison_facts.collect_blocks(block_rows(0, 0.86, 0.85), speed)
    assert cell["latency_ratios"] == {"single": 0.8, "4x1": 0.5}


def test_collect_restored_compares_with_the_best_rate_that_always_trained() -> None:
    rows = [
        *restored_rows("folded", 0.03, (0.85, None)),
        *restored_rows("folded", 0.01, (0.80, 0.82)),
        *restored_rows("folded", 0.003, (0.7, 0.7)),
        *restored_rows("restored", 0.03, (0.86, 0.86)),
    ]
    facts = comparison_facts.collect_restored(rows)
    assert facts is not None
    assert facts["kinds"]["folded", 0.03][10] == {"scores": [85.0], "num_failed": 1}
    (comparison,) = facts["differences"]
    assert comparison["form"] == "folded"
    assert comparison["lr"] == 0.01
    assert comparison["difference"].mean == pytest.approx(5.0)


def test_collect_restored_loss_is_negative() -> None:
    rows = [
        *restored_rows("restored", 0.03, (0.80, 0.80)),
        *restored_rows("never folded", 0.03, (0.85, 0.85)),
    ]
    facts = comparison_facts.collect_restored(rows)
    assert facts is not None
    (comparison,) = facts["differences"]
    assert comparison["form"] == "never folded"
    assert comparison["difference"].mean == pytest.approx(-5.0)


def test_collect_restored_failed_run_is_not_compared() -> None:
    rows = [
        *restored_rows("restored", 0.03, (None, 0.80)),
        *restored_rows("folded", 0.03, (0.85, 0.85)),
    ]
    facts = comparison_facts.collect_restored(rows)
    assert facts is not None
    assert facts["differences"] == []


def test_collect_restored_without_rows_returns_none() -> None:
    assert comparison_facts.collect_restored([]) is None


CHOICE = {"cell": "resnet", "compression": 10, "seed": 0, "original": 0.9}


def test_collect_rules_groups_values_by_method() -> None:
    rows = [
        {**CHOICE, "distill": 0.5, "strength": None, "val": 0.8},
        {**CHOICE, "distill": 0.5, "strength": None, "val": 0.7, "seed": 1},
        {**CHOICE, "distill": 0, "strength": 1.0, "val": 0.6},
    ]
    facts = comparison_facts.collect_rules(rows)
    assert facts is not None
    (cell,) = facts["cells"]
    assert cell["targets"][10] == {
        (0.5, None): pytest.approx([80.0, 70.0]),
        (0, 1.0): pytest.approx([60.0]),
    }
    assert comparison_facts.collect_rates(rows) is None


def test_collect_rates_groups_values_by_rate() -> None:
    rows = [{**CHOICE, "lr": lr, "val": val} for lr, val in ((1e-4, 0.8), (3e-4, 0.7))]
    facts = comparison_facts.collect_rates(rows)
    assert facts is not None
    assert facts["targets"][10] == {1e-4: pytest.approx([80.0]), 3e-4: pytest.approx([70.0])}
    assert comparison_facts.collect_rules(rows) is None
