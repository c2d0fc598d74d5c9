"""What a run of an ablation measures."""

from torch import tensor

from benchmarks.ablations import plans
from benchmarks.ablations.runs import describe_layer, describe_weights, make_settings
from benchmarks.rows import parse_numbers


def test_describe_layer_counts_weights_by_distance():
    seen = describe_layer(
        tensor([[0.1, -0.3], [0.3, 0.4]]), tensor([[0.05, -0.3], [0.3, 0.1]]), 0.04, is_drawn=True
    )
    assert seen["kept"] == 0.5
    assert parse_numbers(seen["about_threshold"]).sum() == 4
    assert seen["before"] == "0.1 -0.3 0.3 0.4"
    assert (seen["came"], seen["went"]) == (0.0, 0.5)


def test_describe_layer_counts_weights_that_crossed_the_threshold():
    seen = describe_layer(tensor([0.1, 0.3, 0.3]), tensor([0.3, 0.3, 0.3]), 0.04, is_drawn=False)
    assert seen["came"] == tensor(1 / 3).item()
    assert seen["went"] == 0.0
    assert "before" not in seen


def test_describe_weights_scales_each_layer_by_its_threshold():
    layer = plans.LAYER
    before = {layer: tensor([1.0, 2.0]), "b": tensor([4.0])}
    after = {layer: tensor([0.1, 2.0]), "b": tensor([-8.0])}
    seen = describe_weights(before, after, {layer: 1.0, "b": 16.0}, is_drawn=True)
    assert (seen["layer"]["tau"], seen["layer"]["kept"]) == (1.0, 0.5)
    assert seen["kernels"]["before"] == "1 2 1"
    assert seen["kernels"]["after"] == "0.1 2 -2"
    assert seen["kernels"]["kept"] == tensor(2 / 3).item()


def test_make_settings_accepts_every_plan():
    for plan in plans.list_runs():
        settings = make_settings(plan, 1000, {})
        assert (settings.method.lambda_ is None) == (plan["mode"] == "budget")
        assert settings.train.seed == plan["seed"]


def test_make_settings_divides_lambda_by_the_number_of_elements():
    assert make_settings(plans.make_paper_plan(), 1000, {}).method.lambda_ == plans.PULL / 1000
    assert (
        make_settings(plans.make_paper_plan(regulariser="l2", l2=0.5), 1000, {}).method.lambda_
        == 0.5
    )
