"""Which runs the ablations consist of."""

import json

from benchmarks.ablations import plans


def test_runs_that_ablations_share_are_measured_once():
    every = plans.list_runs()
    assert len({json.dumps(plan, sort_keys=True) for plan in every}) == len(every)
    assert len(every) < sum(len(list(ablation())) for ablation in plans.ABLATIONS)


def test_no_run_is_taken_for_another():
    """A row is found by the items of its plan, so no plan may be a part of another one."""
    every = plans.list_runs()
    for plan in every:
        assert sum(plan.items() <= other.items() for other in every) == 1


def test_every_ablation_has_seeds_enough_for_a_standard_deviation():
    for ablation in plans.ABLATIONS:
        settings = [
            json.dumps({k: v for k, v in plan.items() if k != "seed"}) for plan in ablation()
        ]
        assert min(settings.count(one) for one in settings) >= 2
    assert len(plans.SEEDS) >= 5


def test_every_seed_has_a_dense_network():
    assert {plan["seed"] for plan in plans.list_runs()} == {
        plan["seed"] for plan in plans.iter_dense_runs()
    }


def test_the_runs_of_the_scatter_plot_are_among_those_of_the_gradient():
    drawn = list(plans.iter_scatter_runs())
    assert [plan["weight_gradient"] for plan in drawn] == list(plans.GRADIENTS)
