"""What is kept of one run of an ablation."""

from torch import tensor

from benchmarks.ablations import plans
from benchmarks.ablations.runs import closely, looked_at, settings_of
from benchmarks.rows import numbers


def test_layer_looked_at_closely():
    seen = closely(
        tensor([[0.1, -0.3], [0.3, 0.4]]), tensor([[0.05, -0.3], [0.3, 0.1]]), 0.04, is_drawn=True
    )
    assert seen["kept"] == 0.5
    assert numbers(seen["about_threshold"]).sum() == 4
    assert seen["before"] == "0.1 -0.3 0.3 0.4"
    assert (seen["came"], seen["went"]) == (0.0, 0.5)


def test_weights_that_came_over_the_threshold_are_counted_among_the_kept():
    seen = closely(tensor([0.1, 0.3, 0.3]), tensor([0.3, 0.3, 0.3]), 0.04, is_drawn=False)
    assert seen["came"] == tensor(1 / 3).item()
    assert seen["went"] == 0.0
    assert "before" not in seen


def test_kernels_are_looked_at_together_each_by_its_own_threshold():
    layer = plans.LAYER
    before = {layer: tensor([1.0, 2.0]), "b": tensor([4.0])}
    after = {layer: tensor([0.1, 2.0]), "b": tensor([-8.0])}
    seen = looked_at(before, after, {layer: 1.0, "b": 16.0}, is_drawn=True)
    assert (seen["layer"]["tau"], seen["layer"]["kept"]) == (1.0, 0.5)
    assert seen["kernels"]["before"] == "1 2 1"
    assert seen["kernels"]["after"] == "0.1 2 -2"
    assert seen["kernels"]["kept"] == tensor(2 / 3).item()


def test_plans_are_settings():
    for plan in plans.every():
        settings = settings_of(plan, 1000, {})
        assert (settings.method.lambda_ is None) == (plan["mode"] == "budget")
        assert settings.train.seed == plan["seed"]


def test_the_paper_s_lambda_is_free_of_the_size_of_the_network():
    assert settings_of(plans.paper(), 1000, {}).method.lambda_ == plans.PULL / 1000
    assert settings_of(plans.paper(regulariser="l2", l2=0.5), 1000, {}).method.lambda_ == 0.5
