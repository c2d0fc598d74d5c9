"""Masks: exact counts, floors, ties."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.layer_weights import LayerWeight
from ltp_pipeline.settings.schema import MethodSettings
from ltp_pipeline.stages.learn_thresholds import masks
from ltp_pipeline.stages.weight_costs import WeightCosts, count_multiply_add_costs


def layers(seed: int, *sizes: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {f"layer{i}": torch.randn(n, generator=generator) for i, n in enumerate(sizes)}


def taus(*values: float) -> dict[str, torch.Tensor]:
    return {f"layer{i}": torch.tensor(v) for i, v in enumerate(values)}


@given(st.integers(0, 50), st.integers(6, 160))
def test_masks_keep_the_requested_count(seed: int, count: int):
    weights = layers(seed, 30, 50, 80)
    scale = taus(1.0, 0.1, 10.0)
    found = masks.keep_exactly(weights, scale, dict.fromkeys(weights, 2), count)
    assert sum(int(m.sum()) for m in found.values()) == count
    assert all(int(m.sum()) >= 2 for m in found.values())


@given(st.integers(0, 50))
def test_within_a_layer_the_largest_weights_stay(seed: int):
    weights = layers(seed, 40, 60)
    found = masks.keep_exactly(weights, taus(1.0, 3.0), {"layer0": 0, "layer1": 0}, 37)
    for name, mask in found.items():
        kept, gone = weights[name].abs()[mask], weights[name].abs()[~mask]
        assert not kept.numel() or not gone.numel() or kept.min() >= gone.max()


def test_equal_thresholds_rank_all_weights_by_size():
    weights = layers(3, 40, 60)
    found = masks.keep_exactly(weights, taus(1.0, 1.0), dict.fromkeys(weights, 0), 10)
    everything = torch.cat(list(weights.values())).abs()
    assert torch.equal(
        torch.cat(list(found.values())), everything >= everything.sort(descending=True).values[9]
    )


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.integers(0, 40))
def test_masks_keep_the_first_of_equal_weights(values: list[int], count: int):
    w = torch.tensor(values, dtype=torch.float32)
    wanted = torch.zeros(len(w), dtype=torch.bool)
    wanted[torch.sort(w.abs(), descending=True, stable=True).indices[:count]] = True
    assert torch.equal(masks.keep_largest(w, count), wanted)


def test_equal_weights_do_not_break_the_count():
    assert int(masks.keep_largest(torch.ones(9), 4).sum()) == 4


def test_masks_respect_the_minimum_count():
    w = torch.tensor([0.1, 0.2, 0.3, 0.4])
    assert masks.keep_above(w, 1.0, 2).tolist() == [False, False, True, True]


@pytest.mark.parametrize("zeros", [0, 1, 3])
def test_thresholds_for_zeros_only_are_half_the_smallest_square(
    zeros: int,
):
    w = torch.tensor([0.5, -0.2, 0.4] + [0.0] * zeros)
    (found,) = masks.scale_thresholds({"layer0": w}, taus(3.0), {"layer0": 1}, 3)
    assert found.item() == pytest.approx(0.2**2 / 2)


def kernels(*sizes: int, reasons: tuple[str | None, ...] = ()) -> list[LayerWeight]:
    reasons = reasons or (None,) * len(sizes)
    return [
        LayerWeight(f"k{i}", "Conv", (n,), reason)
        for i, (n, reason) in enumerate(zip(sizes, reasons, strict=True))
    ]


def test_kernels_that_are_not_pruned_count_against_the_target():
    found = kernels(1000, 100, reasons=(None, "excluded"))
    present = {"k0": 1000, "k1": 100}
    assert masks.target_count(found, present, {"k0": 10}, 5.0) == 1100 // 5 - 100


@given(st.integers(1000, 10_000_000), st.integers(1, 200_000), st.integers(4, 900))
def test_target_at_the_minimum_counts_is_accepted(prunable: int, excluded: int, floor: int):
    found = kernels(prunable, excluded, reasons=(None, "excluded"))
    present = {"k0": prunable, "k1": excluded}
    most = (prunable + excluded) / (excluded + floor)
    assert masks.target_count(found, present, {"k0": floor}, most) == floor


def test_target_beyond_minimum_counts_names_the_reachable():
    found = kernels(1000)
    lowest = masks.min_kept_counts(found, {"k0": 1000}, MethodSettings(min_layer_density=0.1))
    with pytest.raises(InputError, match=r"\b10\.0×"):
        masks.target_count(found, {"k0": 1000}, lowest, 20.0)


def test_target_below_present_compression_raises():
    with pytest.raises(InputError, match=r"\b10\.00×"):
        masks.target_count(kernels(1000), {"k0": 100}, {"k0": 8}, 5.0)


def test_target_reachable_counts_excluded_layers():
    with pytest.raises(InputError, match=r"\b5\.5×"):
        masks.target_count(
            kernels(1000, 100, reasons=(None, "excluded")),
            {"k0": 1000, "k1": 100},
            {"k0": 100},
            8.0,
        )


@pytest.mark.parametrize(
    ("present", "compression", "present_compression"),
    [({"k0": 100, "k1": 100}, 5.0, "5.50×"), ({"k0": 10, "k1": 100}, 10.0, "10.00×")],
)
def test_target_met_already_with_excluded_layers_raises(
    present: dict[str, int], compression: float, present_compression: str
):
    with pytest.raises(InputError, match=rf"\b{present_compression}"):
        masks.target_count(
            kernels(1000, 100, reasons=(None, "excluded")), present, {"k0": 8}, compression
        )


def test_min_counts_are_at_most_the_nonzeros():
    assert masks.min_kept_counts(
        kernels(1000), {"k0": 3}, MethodSettings(min_layer_density=0.1)
    ) == {"k0": 3}


@pytest.mark.parametrize("pruned", [0, 1, 2, 4])
def test_thresholds_prune_exactly_so_many_of_different_weights(pruned: int):
    sizes = {"layer0": torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])}
    (tau,) = masks.scale_thresholds(sizes, taus(1.0), {"layer0": 0}, 5 - pruned)
    assert masks.count_above(sizes, tau[None]) == 5 - pruned


def test_min_counts_of_all_weights_prune_nothing():
    sizes = {"layer0": torch.tensor([1.0, 2.0, 3.0]), "layer1": torch.tensor([4.0, 5.0, 6.0])}
    found = masks.scale_thresholds(sizes, taus(1.0, 1.0), {"layer0": 3, "layer1": 1}, 4)
    assert masks.count_above(sizes, torch.stack(found)) == 4
    assert found[0] < 1


@given(
    sizes=st.lists(st.integers(5, 60), min_size=1, max_size=4),
    costs=st.lists(st.integers(1, 50), min_size=4, max_size=4),
    fraction=st.floats(0.05, 1.0),
    seed=st.integers(0, 100),
)
def test_masks_of_a_cost_budget_are_the_largest_ratios_that_it_pays_for(
    sizes: list[int], costs: list[int], fraction: float, seed: int
):
    generator = torch.Generator().manual_seed(seed)
    weights = {f"layer{i}": torch.randn(n, generator=generator) for i, n in enumerate(sizes)}
    cost_of = dict(zip(weights, costs, strict=False))
    scale = {name: torch.tensor(float(cost_of[name])) for name in weights}
    total = sum(cost_of[name] * w.numel() for name, w in weights.items())
    budget = int(fraction * total)
    lowest = dict.fromkeys(weights, 0)
    actual = masks.keep_exactly(weights, scale, lowest, budget, costs=cost_of)
    ratios = torch.cat([w.square() / cost_of[name] for name, w in weights.items()])
    kept = torch.cat(list(actual.values()))
    spent = sum(cost_of[name] * int(mask.sum()) for name, mask in actual.items())
    assert spent <= budget
    if not kept.all():
        cost = torch.cat([torch.full_like(w, cost_of[name]) for name, w in weights.items()])
        best_pruned = ratios[~kept].argmax()
        assert spent + float(cost[~kept][best_pruned]) > budget
        assert not kept.any() or ratios[kept].min() > ratios[~kept].max()


def test_layers_keep_their_lowest_weights_whatever_they_cost():
    weights = {"cheap": torch.ones(10) + torch.arange(10), "dear": torch.full((10,), 1e-3)}
    costs = {"cheap": 1, "dear": 1000}
    scale = {name: torch.tensor(float(cost)) for name, cost in costs.items()}
    actual = masks.keep_exactly(weights, scale, {"cheap": 0, "dear": 2}, 2005, costs=costs)
    assert {name: int(mask.sum()) for name, mask in actual.items()} == {"cheap": 5, "dear": 2}


def test_thresholds_of_a_cost_budget_agree_with_its_masks():
    generator = torch.Generator().manual_seed(1)
    weights = {f"layer{i}": torch.randn(40, generator=generator) for i in range(3)}
    costs = {"layer0": 1, "layer1": 7, "layer2": 30}
    scale = {name: torch.tensor(float(cost)) for name, cost in costs.items()}
    lowest = dict.fromkeys(weights, 1)
    expected = masks.keep_exactly(weights, scale, lowest, 300, costs=costs)
    thresholds = masks.scale_thresholds(weights, scale, lowest, 300, costs)
    for (name, w), tau in zip(weights.items(), thresholds, strict=True):
        assert torch.equal(w.square() > tau, expected[name]), name


COSTS = {"k0": 4, "k1": 1}


def costs(layers: list[LayerWeight], fraction: float) -> WeightCosts:
    return count_multiply_add_costs(layers, COSTS, fraction)


def test_target_cost_is_what_the_prunable_layers_may_cost():
    layers = kernels(1000, 100, reasons=(None, "excluded"))
    present = {"k0": 1000, "k1": 100}
    # A fifth of 4 · 1000 + 100, less the excluded 100.
    assert masks.target_cost(layers, present, {"k0": 10}, costs(layers, 0.2)) == 4100 // 5 - 100


def test_target_cost_out_of_reach_is_rejected_in_multiply_adds():
    layers = kernels(1000, 100, reasons=(None, "excluded"))
    with pytest.raises(InputError) as caught:
        masks.target_cost(layers, {"k0": 1000, "k1": 100}, {"k0": 100}, costs(layers, 0.05))
    assert caught.value.message == (
        "205 of 4,100 multiply-adds are out of reach: 100 belong to layers that are excluded from"
        " pruning, and the others keep at least 400, so 0.122 is the smallest fraction"
    )
    assert "budget.target_macs" in caught.value.hint
    reachable = costs(layers, 0.122)
    assert masks.target_cost(layers, {"k0": 1000, "k1": 100}, {"k0": 100}, reachable) == 400


def test_target_cost_that_is_met_already_is_rejected_in_multiply_adds():
    with pytest.raises(InputError, match="has only 400 of 4,000 multiply-adds already"):
        masks.target_cost(kernels(1000), {"k0": 100}, {"k0": 8}, costs(kernels(1000), 0.2))
