"""The tests of the study: differences of pairs, Holm's correction, verdicts."""

from typing import Any

import numpy as np
import pytest

from benchmarks.study import judge, page
from benchmarks.study.networks import WEIGHTS
from tests.support.paths import ROOT


def make_rows(
    method: str, values: list[float | None], network: str = "mlp"
) -> list[dict[str, Any]]:
    plan = {"network": network, "cost": WEIGHTS, "fraction": 0.05, "method": method}
    plan |= {"lr": 0.1, "units": False, "seconds": 1.0, "commit": "abc", "processor": "p"}
    return [
        {**plan, "seed": seed, "test": value, "val": value, "multiply_adds_left": 0.1}
        for seed, value in enumerate(values, 1)
    ]


# Percentage points of Student's distribution from printed tables.
@pytest.mark.parametrize(
    ("t", "freedom", "tail"),
    [(12.706, 1, 0.05), (9.925, 2, 0.01), (3.182, 3, 0.05), (4.604, 4, 0.01), (2.228, 10, 0.05)],
)
def test_t_tail_agrees_with_printed_tables(t: float, freedom: int, tail: float):
    assert judge.t_tail(t, freedom) == pytest.approx(tail, rel=2e-3)


def test_paired_t_test_of_a_known_sample():
    interval, p = judge.paired_t_test([1.0, 2.0, 3.0, 4.0])
    half = 3.182446 * np.std([1, 2, 3, 4], ddof=1) / 2
    assert interval == pytest.approx((2.5 - half, 2.5 + half), rel=1e-5)
    assert p == pytest.approx(0.0304, abs=1e-4)


def test_holm_multiplies_by_the_number_of_tests_left_and_never_falls():
    assert judge.adjust_by_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx(
        [0.03, 0.06, 0.06, 0.02]
    )


def test_holm_never_exceeds_one():
    assert judge.adjust_by_holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("ours", "verdict"), [(0.82, "ahead"), (0.78, "behind"), (0.8001, "level")]
)
def test_verdict_needs_significance_and_follows_the_sign(ours: float, verdict: str):
    noise = [0.001, -0.001, 0.0005, 0.0, -0.0005]
    rows = make_rows("ltp", [ours + e for e in noise]) + make_rows("gradual", [0.8] * 5)
    (comparison,) = judge.compare(rows, "gradual")
    assert comparison.verdict == verdict


def test_compare_pairs_by_seed():
    rows = make_rows("ltp", [0.5, 0.6, 0.7]) + make_rows("gradual", [0.49, 0.59, 0.69, 0.1])
    (comparison,) = judge.compare(rows, "gradual")
    assert comparison.pairs == 3
    assert comparison.mean == pytest.approx(0.01)


def test_compare_counts_a_diverged_run_with_chance():
    rows = make_rows("ltp", [0.5, 0.5, 0.5]) + make_rows("gradual", [0.5, None, 0.5])
    (comparison,) = judge.compare(rows, "gradual")
    assert comparison.mean == pytest.approx(0.4 / 3)


def test_compare_leaves_out_cells_with_few_pairs():
    rows = make_rows("ltp", [0.5, 0.6]) + make_rows("gradual", [0.4, 0.5])
    assert judge.compare(rows, "gradual") == []


def test_compare_leaves_out_the_seed_of_the_rates():
    rows = make_rows("ltp", [0.5, 0.5, 0.5]) + make_rows("gradual", [0.5, 0.5, 0.5])
    rows += [{**row, "seed": 0, "test": 0.0} for row in rows if row["method"] == "ltp"][:1]
    (comparison,) = judge.compare(rows, "gradual")
    assert comparison.mean == 0


def test_dense_rows_stand_for_all_cells_of_a_network():
    rows = make_rows("ltp", [0.5, 0.5, 0.5]) + make_rows("dense", [0.6, 0.6, 0.6])
    rows = [{**row, "fraction": 0.2} if row["method"] == "ltp" else row for row in rows]
    (comparison,) = judge.compare(rows, "dense")
    assert comparison.cell.fraction == 0.2


def test_page_shows_means_and_verdicts_of_the_rows():
    noise = [0.001, -0.001, 0.0005, 0.0, -0.0005]
    rows = make_rows("ltp", [0.82 + e for e in noise]) + make_rows("gradual", [0.8] * 5)
    text = page.render_page(rows)
    assert "82.00 ± 0.08" in text
    assert "+2.00" in text
    assert "▲" in text


def test_page_without_rows_says_that_nothing_was_measured():
    assert "| network |" not in page.render_page([])


def test_page_in_docs_agrees_with_the_rows():
    written = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    assert written == page.render_page(page.load_rows()), "run python scripts/write_results.py"
