"""Rows of results files."""

import pytest

from benchmarks import rows
from benchmarks.ablations import plans


def test_find_row_returns_the_row_of_a_plan():
    plan = plans.make_paper_plan(weight_gradient="10")
    known = [{**plans.make_paper_plan(), "test": 1}, {**plan, "test": 2}]
    assert rows.find_row(known, plan)["test"] == 2
    assert rows.find_row(known, plans.make_budget_plan()) is None


def test_mean_std_is_that_of_a_sample():
    assert rows.mean_std([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))
    assert rows.mean_std([1.0]) == (1.0, 0.0)


def test_list_origins_names_each_commit_and_processor_once():
    known = [{"commit": "b", "processor": "p"}, {"commit": "a", "processor": "p"}, {}]
    assert rows.list_origins(known) == ("a, b, –", "p, –")
