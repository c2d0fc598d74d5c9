"""What a weight of each layer costs."""

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.layer_weights import LayerWeight
from ltp_pipeline.stages.weight_costs import count_multiply_add_costs, find_reachable

LAYERS = [
    LayerWeight("conv", "Conv", (10, 10)),
    LayerWeight("head", "Gemm", (5, 10), "excluded"),
]


def test_multiply_add_budget_is_a_fraction_of_all_elements_rounded_down() -> None:
    costs = count_multiply_add_costs(LAYERS, {"conv": 7, "head": 1, "other": 9}, 0.1)
    assert (costs.kind, dict(costs.per_weight)) == ("multiply-adds", {"conv": 7, "head": 1})
    assert (costs.total, costs.budget) == (750, 75)
    assert costs.reduction == 10


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.3, 0.6, 0.7])
def test_multiply_add_budget_is_not_lost_by_rounding_of_the_product(fraction: float) -> None:
    costs = count_multiply_add_costs([LayerWeight("conv", "Conv", (10,))], {"conv": 1}, fraction)
    assert costs.budget == round(10 * fraction)


def test_multiply_adds_of_an_uncounted_layer_are_rejected_by_its_name() -> None:
    with pytest.raises(InputError, match="'head' cannot be counted"):
        count_multiply_add_costs(LAYERS, {"conv": 7}, 0.1)


def test_reachable_costs_leave_out_excluded_layers() -> None:
    nonzeros = {"conv": 80, "head": 50}
    reachable = find_reachable(LAYERS, nonzeros, {"conv": 4}, {"conv": 7, "head": 3})
    assert tuple(reachable) == (150, 28, 560)
