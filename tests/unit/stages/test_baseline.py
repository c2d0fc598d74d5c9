"""Global magnitude pruning: which weights it keeps, and how long it trains."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ltp_pipeline.graph.layer_weights import LayerWeight
from ltp_pipeline.settings.schema import BaselineScore, BaselineSettings, Settings
from ltp_pipeline.stages import baseline
from ltp_pipeline.stages.baseline import global_magnitude_masks
from ltp_pipeline.stages.train.context import PrunedNetwork

STATE = {
    "a": torch.tensor([0.5, -0.9, 0.1, 0.0]),
    "b": torch.tensor([[0.05, -0.6], [0.7, 0.2]]),
    "kept": torch.tensor([0.01, 0.0, 0.02]),
}
KERNELS = (
    LayerWeight("a", "Conv", (4,), block_axis=0),
    LayerWeight("b", "Gemm", (2, 2)),
    LayerWeight("kept", "Gemm", (3,), "excluded"),
)
NETWORK: Any = SimpleNamespace(layer_weights=KERNELS, prunable_weights=KERNELS[:2])


def context(block: str | None = None) -> Any:
    settings = Settings.model_validate({"method": {"block": block}})
    data = SimpleNamespace(val=None)
    return SimpleNamespace(network=NETWORK, settings=settings, data=data, costs=None)


def test_baseline_keeps_the_largest_weights_of_all_layers():
    masks = global_magnitude_masks(NETWORK, STATE, budget=5)
    assert masks["a"].tolist() == [False, True, False, False]
    assert masks["b"].tolist() == [[False, True], [True, False]]


def test_baseline_counts_excluded_layers():
    masks = global_magnitude_masks(NETWORK, STATE, budget=4)
    assert masks.keys() == {"a", "b"}
    assert sum(int(mask.sum()) for mask in masks.values()) == 4 - 2


def test_baseline_excluded_layer_is_compensated_by_others():
    masks = global_magnitude_masks(NETWORK, STATE, budget=6, excluded={"a"})
    assert masks["a"].tolist() == [True, True, True, False]  # a zero is no weight
    assert masks["b"].tolist() == [[False, False], [True, False]]


def test_baseline_minimum_is_one_weight_per_layer():
    assert baseline.min_cost(NETWORK, STATE) == 1 + 1 + 2
    assert baseline.min_cost(NETWORK, STATE, {"a"}) == 3 + 1 + 2


SCORES: tuple[BaselineScore, ...] = ("magnitude", "lamp")
COSTS = {"a": 4, "b": 1, "kept": 10}


def test_masks_with_costs_keep_the_largest_ratios_that_the_budget_pays_for():
    # w² / cost: a 0.0625, 0.2025, 0.0025; b 0.0025, 0.36, 0.49, 0.04. The excluded weights cost 20.
    masks = global_magnitude_masks(NETWORK, STATE, budget=20 + 6, costs=COSTS)
    assert masks["a"].tolist() == [False, True, False, False]
    assert masks["b"].tolist() == [[False, True], [True, False]]


def test_masks_with_costs_differ_from_those_that_count_weights():
    masks = global_magnitude_masks(NETWORK, STATE, budget=20 + 3, costs=COSTS)
    assert masks["a"].tolist() == [False] * 4  # although it has the largest weight
    assert masks["b"].tolist() == [[False, True], [True, False]]


def test_masks_with_costs_pay_for_layers_that_keep_all_weights():
    masks = global_magnitude_masks(NETWORK, STATE, budget=20 + 13, excluded={"a"}, costs=COSTS)
    assert masks["a"].tolist() == [True, True, True, False]
    assert masks["b"].tolist() == [[False, False], [True, False]]


def test_min_cost_with_costs_is_that_of_one_weight_or_block_of_each_layer():
    assert baseline.min_cost(NETWORK, STATE, costs=COSTS) == 4 + 1 + 20
    assert baseline.min_cost(NETWORK, STATE, axes={"a": 0}, costs=COSTS) == 16 + 1 + 20


def test_probe_accuracy_with_a_budget_of_multiply_adds_prunes_to_their_number(monkeypatch):
    seen: list[Any] = []
    monkeypatch.setattr(baseline, "refresh_statistics", lambda _, state: state)
    monkeypatch.setattr(baseline, "evaluate_metric", lambda _, state, __: seen.append(state) or 0.5)
    probed = context()
    probed.costs = COSTS
    baseline.probe_accuracy(probed, STATE, 23)
    nonzeros = {name: int(w.count_nonzero()) for name, w in seen[0].items()}
    assert nonzeros == {"a": 0, "b": 2, "kept": 2}


def test_baseline_keeps_the_largest_blocks():
    masks = global_magnitude_masks(NETWORK, STATE, budget=8, axes={"a": 0})
    assert masks["a"].tolist() == [True] * 4  # the mean of its squares is more than .2²
    assert masks["b"].tolist() == [[False, True], [True, False]]


def test_baseline_block_beyond_the_count_is_dropped():
    masks = global_magnitude_masks(NETWORK, STATE, budget=7, axes={"a": 0})
    assert masks["a"].tolist() == [False] * 4
    assert masks["b"].tolist() == [[False, True], [True, False]]


def test_baseline_excluded_layer_keeps_its_blocks():
    masks = global_magnitude_masks(NETWORK, STATE, budget=7, excluded={"a"}, axes={"a": 0})
    assert masks["a"].tolist() == [True] * 4


def test_baseline_minimum_is_one_block_per_layer():
    assert baseline.min_cost(NETWORK, STATE, axes={"a": 0}) == 4 + 1 + 2
    assert baseline.min_cost(NETWORK, STATE, {"a"}, {"a": 0}) == 3 + 1 + 2


@pytest.mark.parametrize(("block", "kept"), [(None, 2), ("4x1", 0)])
def test_baseline_count_is_in_blocks_of_the_run(monkeypatch, block, kept):
    seen: list[Any] = []
    monkeypatch.setattr(baseline, "refresh_statistics", lambda _, state: state)
    monkeypatch.setattr(baseline, "evaluate_metric", lambda _, state, __: seen.append(state) or 0.5)
    assert baseline.probe_accuracy(context(block), STATE, 7) == 0.5
    assert int(seen[0]["a"].count_nonzero()) == kept


def test_baseline_names_are_distinct():
    names = [
        baseline.point_key(point, BaselineSettings(exclude_classifier=spared, score=score))
        for spared in (False, True)
        for score in SCORES
        for point in (1, 2, 3, baseline.UNSTRUCTURED, "gradual")
    ]
    assert names[:5] == ["baseline", "baseline-2", "baseline-3", "baseline-single", "gradual"]
    assert len(set(names)) == len(names)


def test_baseline_trains_the_requested_epochs(
    monkeypatch,
):
    seen: list[tuple[PrunedNetwork, int, str, str]] = []
    monkeypatch.setattr(baseline, "refresh_statistics", lambda _, state: state)
    monkeypatch.setattr(
        baseline.finetune, "run", lambda _, pruned, *rest: seen.append((pruned, *rest))
    )
    baseline.run(context(), STATE, budget=5, epochs=7)
    ((pruned, epochs, name, key),) = seen
    assert (epochs, name, key, pruned.nonzeros) == (7, "baseline", "baseline", 5)
    assert pruned.state["a"].tolist() == torch.tensor([0.0, -0.9, 0.0, 0.0]).tolist()
    assert STATE["a"][0] == 0.5
