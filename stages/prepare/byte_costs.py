"""Costs in bytes of the packed file, and the budget at which a file of that size comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from torch import Tensor

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.encodings import packed
from ltp_pipeline.graph.layer_weights import get_block_axes
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import export
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.learn_thresholds.blocks import weight_sizes
from ltp_pipeline.stages.learn_thresholds.fixed_masks import FixedMaskPruning
from ltp_pipeline.stages.learn_thresholds.masks import min_kept_counts
from ltp_pipeline.stages.multiply_adds import count_cost
from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.stages.weight_costs import MakeMasks, Masks, WeightCosts, find_reachable
from ltp_pipeline.system.arrays import StateDict

ENCODING = "packed"  # the encoding whose file the budget limits
CLOSE = 0.995  # a file of at least this fraction of the allowed bytes is large enough
MAX_SOLVES = 40  # files that are measured for one budget


def count_byte_costs(network: Network, state: StateDict, settings: Settings) -> WeightCosts:
    """Return costs in bits of the packed file, and the budget that fills the allowed bytes.

    Args:
        network: The network.
        state: Tensors of the original network.
        settings: The settings, with budget.target_bytes.

    Raises:
        InputError: No file is as small, or the file is as small already.
    """
    limit = settings.budget.count_bytes(network.file.num_bytes)
    assert limit is not None  # noqa: S101 - the budget is one of bytes
    names = [layer.name for layer in network.layer_weights]
    weights = {layer.name: state[layer.name] for layer in network.prunable_weights}
    axes = get_block_axes(network.layer_weights, settings.method.block)
    sizes = weight_sizes(weights, axes)
    prunable_nonzeros = {name: int(r.count_nonzero()) for name, r in sizes.items()}
    lowest = min_kept_counts(network.prunable_weights, prunable_nonzeros, settings.method, axes)
    nonzeros = count_nonzeros(network, state)
    external = settings.export.external_data

    def measure(masks: Masks) -> int:
        return export.measure_size(
            network.file, apply_file_masks(network, masks), names, ENCODING, external
        )

    costs = dict.fromkeys(names, 1)
    masks: Mapping[str, Tensor] = {name: r != 0 for name, r in sizes.items()}
    present_bytes = measure(masks)
    if limit >= present_bytes:
        raise InputError(
            f"the packed file of the model has only {present_bytes:,} bytes before it is pruned,"
            f" and the budget is {limit:,}",
            f"set budget.target_bytes below {present_bytes}",
        )
    # The bits of a nonzero depend on how many there are, so they are counted twice.
    for is_counted in (False, True):
        if is_counted:
            masked = network.file.model.with_weights(apply_file_masks(network, masks))
            costs = packed.count_weight_bits(masked, names)
        prunable_costs = {name: costs[name] for name in weights}

        def make_masks(budget: int, costs: Mapping[str, int] = prunable_costs) -> Masks:
            return FixedMaskPruning(weights, lowest, budget, axes, costs).masks

        reachable = find_reachable(network.layer_weights, nonzeros, lowest, costs)
        fewest_bytes = measure(make_masks(reachable.least))
        if limit < fewest_bytes:
            raise InputError(
                f"a packed file of {limit:,} bytes is out of reach:"
                f" with the fewest weights that layers keep, it has {fewest_bytes:,} bytes",
                "raise budget.target_bytes, lower method.min_layer_density, or exclude fewer"
                " layers",
            )
        budget = solve_budget(
            lambda b: measure(make_masks(b)), limit, reachable.least, reachable.present
        )
        masks = make_masks(budget)
    total = count_cost({layer.name: layer.elements for layer in network.layer_weights}, costs)

    def meet_target(make_masks: MakeMasks, start: int) -> int:  # noqa: ARG001 - any start will do
        return solve_budget(
            lambda b: measure(make_masks(b)), limit, reachable.least, reachable.present
        )

    return WeightCosts("bytes", costs, total, budget + reachable.excluded, meet_target)


def solve_budget(measure: Callable[[int], float], limit: float, lowest: int, highest: int) -> int:
    """Return a budget whose measured value is at most a limit, and close to it.

    The search divides the range where a straight line between its ends meets the limit, and in the
    middle in every other step.

    Args:
        measure: Returns the measured value of a budget, which grows with it.
        limit: The largest value.
        lowest: A budget that is within the limit.
        highest: A budget above it.
    """
    low, high = lowest, highest
    low_value, high_value = measure(low), measure(high)
    for step in range(MAX_SOLVES):
        if high - low <= 1 or low_value >= CLOSE * limit or high_value <= limit:
            break
        # A little below the limit, so that the point is not just above it.
        aim = (1 + CLOSE) / 2 * limit
        fraction = 0.5 if step % 3 == 2 else (aim - low_value) / (high_value - low_value)
        middle = min(max(round(low + fraction * (high - low)), low + 1), high - 1)
        value = measure(middle)
        if value <= limit:
            low, low_value = middle, value
        else:
            high, high_value = middle, value
    return high if high_value <= limit else low


def apply_file_masks(network: Network, masks: Masks) -> Weights:
    """Return the layer weights of the original file, with zeros outside of masks.

    No weight inside of a mask is zero, because training moves it.
    """
    weights = {}
    for name, mask in masks.items():
        array = network.file.model.get_array(name)
        ones = np.ones((), array.dtype)
        weights[name] = np.where(mask.cpu().numpy(), np.where(array == 0, ones, array), 0).astype(
            array.dtype
        )
    return weights
