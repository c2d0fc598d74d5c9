"""Costs in bytes of the packed file, and the budget that fills the allowed bytes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import export, learn_thresholds
from ltp_pipeline.stages.prepare import byte_costs
from ltp_pipeline.stages.prune import apply_masks
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.write_back import to_file_weights
from ltp_pipeline.system.arrays import StateDict

Started = tuple[RunContext, StateDict]


@given(st.integers(0, 1000), st.integers(1, 100_000), st.floats(0.3, 3), st.floats(0.02, 0.98))
def test_solve_budget_is_the_largest_that_is_close_to_the_limit(
    lowest: int, length: int, power: float, part: float
) -> None:
    def measure(budget: int) -> float:
        return 100 + 1e6 * ((budget - lowest) / length) ** power

    limit = 100 + part * 1e6
    budget = byte_costs.solve_budget(measure, limit, lowest, lowest + length)
    assert measure(budget) <= limit
    assert measure(budget) >= byte_costs.CLOSE * limit or measure(budget + 1) > limit


def test_solve_budget_of_a_limit_above_all_values_is_the_highest() -> None:
    assert byte_costs.solve_budget(float, 50.0, 0, 20) == 20


def settings_of(target: float, **sections: Any) -> Settings:
    return Settings.model_validate({"budget": {"target_bytes": target}, **sections})


def write_size(context: RunContext, state: StateDict) -> int:
    """Return the bytes of the packed file of a network, as the trail writes it."""
    path = context.run_directory.path("written.onnx")
    names = [layer.name for layer in context.network.layer_weights]
    weights = to_file_weights(context.network, state)
    export.write_file(context.network.file, weights, names, "packed", path)
    return export.get_file_size(path)


@pytest.mark.parametrize("aggressiveness", [0.0, 1.0])
@pytest.mark.parametrize("block", [None, "4x1"])
def test_written_file_fills_the_allowed_bytes(
    started: Started, aggressiveness: float, block: str | None
) -> None:
    context, state = started
    target = context.network.file.num_bytes // 2
    settings = settings_of(target, method={"block": block})
    costs = byte_costs.count_byte_costs(context.network, state, settings)
    method = learn_thresholds.make_pruning_method(
        context.network, state, settings, aggressiveness, costs
    )
    size = write_size(context, {**state, **method.pruned_weights(1.0)})
    assert 0.98 * target <= size <= target


def test_budget_is_met_again_for_learned_masks(started: Started) -> None:
    context, state = started
    target = context.network.file.num_bytes // 2
    costs = byte_costs.count_byte_costs(context.network, state, settings_of(target))
    assert costs.meet_target is not None
    names = [layer.name for layer in context.network.prunable_weights]
    order = {
        name: np.random.default_rng(i).permutation(state[name].numel())
        for i, name in enumerate(names)
    }

    def make_masks(budget: int) -> Any:
        """Keep weights at random positions, at one density of all layers."""
        share = budget / sum(costs.per_weight[name] * state[name].numel() for name in names)
        masks = {}
        for name in names:
            mask = state[name].new_zeros(state[name].numel(), dtype=bool)
            mask[order[name][: round(share * mask.numel())]] = True
            masks[name] = mask.view_as(state[name])
        return masks

    budget = costs.meet_target(make_masks, costs.budget)
    size = write_size(context, apply_masks(state, make_masks(budget)))
    assert 0.98 * target <= size <= target


def test_fraction_is_one_of_the_original_file(started: Started) -> None:
    context, state = started
    fraction = byte_costs.count_byte_costs(context.network, state, settings_of(0.5))
    number = context.network.file.num_bytes // 2
    assert fraction == byte_costs.count_byte_costs(context.network, state, settings_of(number))


@pytest.mark.parametrize("target", [10, 0.001])
def test_bytes_that_no_file_reaches_are_refused_with_the_smallest(
    started: Started, target: float
) -> None:
    context, state = started
    with pytest.raises(InputError, match="out of reach") as caught:
        byte_costs.count_byte_costs(context.network, state, settings_of(target))
    smallest = int(caught.value.message.split()[-2].replace(",", ""))
    costs = byte_costs.count_byte_costs(context.network, state, settings_of(smallest))
    assert costs.reduction > 10


def test_bytes_that_the_model_has_already_are_refused(started: Started) -> None:
    context, state = started
    size = write_size(context, state)
    with pytest.raises(InputError, match="before it is pruned"):
        byte_costs.count_byte_costs(context.network, state, settings_of(size))
    byte_costs.count_byte_costs(context.network, state, settings_of(size - 1))


def test_excluded_layers_keep_their_weights_and_count_toward_the_bytes(started: Started) -> None:
    context, state = started
    layers = [
        replace(layer, reason="excluded") if layer.name.startswith("stem") else layer
        for layer in context.network.layer_weights
    ]
    network = replace(context.network, layer_weights=tuple(layers))
    target = network.file.num_bytes // 2
    costs = byte_costs.count_byte_costs(network, state, settings_of(target))
    method = learn_thresholds.make_pruning_method(
        network, state, settings_of(target), weight_costs=costs
    )
    assert "stem.weight" not in method.layer_weights
    size = write_size(context, {**state, **method.pruned_weights(1.0)})
    assert 0.98 * target <= size <= target


def test_apply_file_masks_has_no_zeros_inside_of_masks(started: Started) -> None:
    context, state = started
    name = context.network.prunable_weights[0].name
    mask = state[name] > 0
    array = byte_costs.apply_file_masks(context.network, {name: mask})[name]
    assert np.array_equal(array != 0, mask.numpy())
