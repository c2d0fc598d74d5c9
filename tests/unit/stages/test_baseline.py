"""Global magnitude pruning: which weights it keeps, and how long it trains."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ltp_pipeline.graph.layer_weights import LayerWeight
from ltp_pipeline.settings.schema import Settings
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
    return SimpleNamespace(network=NETWORK, settings=settings, data=SimpleNamespace(val=None))


def test_baseline_keeps_the_largest_weights_of_all_layers():
    masks = global_magnitude_masks(NETWORK, STATE, nonzeros=5)
    assert masks["a"].tolist() == [False, True, False, False]
    assert masks["b"].tolist() == [[False, True], [True, False]]


def test_baseline_counts_excluded_layers():
    masks = global_magnitude_masks(NETWORK, STATE, nonzeros=4)
    assert masks.keys() == {"a", "b"}
    assert sum(int(mask.sum()) for mask in masks.values()) == 4 - 2


def test_baseline_excluded_layer_is_compensated_by_others():
    masks = global_magnitude_masks(NETWORK, STATE, nonzeros=6, excluded={"a"})
    assert masks["a"].tolist() == [True, True, True, False]  # a zero is no weight
    assert masks["b"].tolist() == [[False, False], [True, False]]


def test_baseline_minimum_is_one_weight_per_layer():
    assert baseline.min_nonzeros(NETWORK, STATE) == 1 + 1 + 2
    assert baseline.min_nonzeros(NETWORK, STATE, {"a"}) == 3 + 1 + 2


def test_baseline_keeps_the_largest_blocks():
    masks = global_magnitude_masks(NETWORK, STATE, nonzeros=8, axes={"a": 0})
    assert masks["a"].tolist() == [True] * 4  # the mean of its squares is more than .2²
    assert masks["b"].tolist() == [[False, True], [True, False]]


def test_baseline_block_beyond_the_count_is_dropped():
    masks = global_magnitude_masks(NETWORK, STATE, nonzeros=7, axes={"a": 0})
    assert masks["a"].tolist() == [False] * 4
    assert masks["b"].tolist() == [[False, True], [True, False]]


def test_baseline_excluded_layer_keeps_its_blocks():
    masks = global_magnitude_masks(NETWORK, STATE, nonzeros=7, excluded={"a"}, axes={"a": 0})
    assert masks["a"].tolist() == [True] * 4


def test_baseline_minimum_is_one_block_per_layer():
    assert baseline.min_nonzeros(NETWORK, STATE, axes={"a": 0}) == 4 + 1 + 2
    assert baseline.min_nonzeros(NETWORK, STATE, {"a"}, {"a": 0}) == 3 + 1 + 2


@pytest.mark.parametrize(("block", "kept"), [(None, 2), ("4x1", 0)])
def test_baseline_count_is_in_blocks_of_the_run(monkeypatch, block, kept):
    seen: list[Any] = []
    monkeypatch.setattr(baseline, "refresh_statistics", lambda _, state: state)
    monkeypatch.setattr(baseline, "evaluate_metric", lambda _, state, __: seen.append(state) or 0.5)
    assert baseline.probe_accuracy(context(block), STATE, 7) == 0.5
    assert int(seen[0]["a"].count_nonzero()) == kept


def test_baseline_names_are_distinct():
    names = [
        baseline.point_key(point, spared)
        for spared in (False, True)
        for point in (1, 2, 3, baseline.UNSTRUCTURED)
    ]
    assert names[:4] == ["baseline", "baseline-2", "baseline-3", "baseline-single"]
    assert len(set(names)) == len(names)


def test_baseline_trains_the_requested_epochs(
    monkeypatch,
):
    seen: list[tuple[PrunedNetwork, int, str, str]] = []
    monkeypatch.setattr(baseline, "refresh_statistics", lambda _, state: state)
    monkeypatch.setattr(
        baseline.finetune, "run", lambda _, pruned, *rest: seen.append((pruned, *rest))
    )
    baseline.run(context(), STATE, nonzeros=5, epochs=7)
    ((pruned, epochs, name, key),) = seen
    assert (epochs, name, key, pruned.nonzeros) == (7, "baseline", "baseline", 5)
    assert pruned.state["a"].tolist() == torch.tensor([0.0, -0.9, 0.0, 0.0]).tolist()
    assert STATE["a"][0] == 0.5
