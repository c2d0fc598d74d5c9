"""Rows of results files."""

import pytest

from benchmarks import rows
from benchmarks.ablations import plans


def test_rows_are_found_by_plan():
    plan = plans.paper(weight_gradient="10")
    known = [{**plans.paper(), "test": 1}, {**plan, "test": 2}]
    assert rows.find(known, plan)["test"] == 2
    assert rows.find(known, plans.budget()) is None


def test_standard_deviations_are_those_of_a_sample():
    assert rows.mean_std([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))
    assert rows.mean_std([1.0]) == (1.0, 0.0)


def test_origins_name_every_commit_and_processor_once():
    known = [{"commit": "b", "processor": "p"}, {"commit": "a", "processor": "p"}, {}]
    assert rows.origins(known) == ("a, b, –", "p, –")
