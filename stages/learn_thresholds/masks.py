"""From thresholds to exact masks: keep the requested number of weights and let no layer die.

In this module, `sizes` is r of blocks.py for each layer: the tensor by which the size of its
weights is compared. It is the weights themselves, or the root mean square of their blocks.
`lowest` is the smallest number of weights that each layer keeps. `costs` is κ, the cost of one
weight of each layer; None if a budget counts weights.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.layer_weights import BLOCK_SIZE, LayerWeight
from ltp_pipeline.settings.schema import MethodSettings
from ltp_pipeline.stages.learn_thresholds.blocks import (
    NO_BLOCKS,
    BlockAxes,
    block_values,
    repeat_in_blocks,
)
from ltp_pipeline.stages.learn_thresholds.functional import is_kept
from ltp_pipeline.stages.weight_costs import WeightCosts, find_reachable

TINY = 1e-30  # a threshold that prunes only zeros, and whose inverse is still finite


def min_kept_counts(
    layers: Sequence[LayerWeight],
    nonzeros: Mapping[str, int],
    settings: MethodSettings,
    axes: BlockAxes = NO_BLOCKS,
) -> dict[str, int]:
    """Return the smallest number of weights that each layer keeps, so that signal gets through.

    Args:
        layers: The layer weights being pruned.
        nonzeros: Number of weights of each layer that are not zero at present.
        settings: min_layer_density and min_layer_weights.
        axes: Layers that are pruned in blocks; these keep whole blocks.
    """
    counts: dict[str, int] = {}
    for layer in layers:
        by_density = math.ceil(settings.min_layer_density * layer.elements)
        count = max(settings.min_layer_weights, by_density)
        if layer.name in axes:
            count = math.ceil(count / BLOCK_SIZE) * BLOCK_SIZE
        counts[layer.name] = min(count, nonzeros[layer.name])
    return counts


def keep_above(w: Tensor, tau: Tensor | float, lowest: int) -> Tensor:
    """Return the mask of eq. (9), w² > τ, or of the `lowest` largest weights if it keeps fewer."""
    mask = is_kept(w, tau)
    if int(mask.sum()) >= lowest:
        return mask
    return keep_largest(w, lowest)


def keep_largest(w: Tensor, count: int) -> Tensor:
    """Return the mask of the `count` weights that are largest in size; first ones win ties."""
    return _mask_largest(w.abs().flatten(), count).view_as(w)


def keep_exactly(
    sizes: Mapping[str, Tensor],
    tau: Mapping[str, Tensor],
    lowest: Mapping[str, int],
    budget: int,
    axes: BlockAxes = NO_BLOCKS,
    costs: Mapping[str, int] | None = None,
) -> dict[str, Tensor]:
    """Return masks whose weights cost `budget` in all layers together.

    Each layer keeps its `lowest` largest weights. The remaining ones are those largest in r²/τ.
    Without `costs`, exactly `budget` weights stay. With costs, the weights cost at most `budget`.
    A block that would be kept only in part is pruned, so up to BLOCK - 1 fewer weights stay.
    """
    ratios, lengths = _threshold_ratios(sizes, tau, lowest)
    if costs is None:
        parts = torch.split(_mask_largest(ratios, budget), lengths)
    else:
        parts = torch.split(ratios > affordable_ratio(ratios, lengths, costs, budget), lengths)
    masks: dict[str, Tensor] = {}
    for (name, r), part in zip(sizes.items(), parts, strict=True):
        mask = part.view_as(r)
        masks[name] = whole_block_mask(mask, r, axes[name]) if name in axes else mask
    return masks


def whole_block_mask(mask: Tensor, r: Tensor, axis: int) -> Tensor:
    """Return the mask of as many of the largest blocks as the weights of a mask make up.

    A mask by size keeps whole blocks, except for the last one. If several blocks are equal, it may
    keep a part of each; then the first ones stay.
    """
    return repeat_in_blocks(
        keep_largest(block_values(r, axis), int(mask.sum()) // BLOCK_SIZE), axis
    )


def scale_thresholds(
    sizes: Mapping[str, Tensor],
    tau: Mapping[str, Tensor],
    lowest: Mapping[str, int],
    budget: int,
    costs: Mapping[str, int] | None = None,
) -> list[Tensor]:
    """Multiply all thresholds by the common factor that leaves weights of cost `budget` above them.

    A threshold is lowered further if its layer would keep fewer than its `lowest` weights.
    """
    ratios, lengths = _threshold_ratios(sizes, tau, lowest)
    below = ratios.numel() - budget
    if costs is not None:
        factor = affordable_ratio(ratios, lengths, costs, budget)
    elif below > 0:
        factor = _kth_smallest(ratios, below)
    else:
        factor = ratios.new_zeros(())
    if not factor > 0:  # only weights that are zero already have to go
        factor = ratios[ratios > 0].min() / 2
    thresholds = []
    for name, r in sizes.items():
        scaled = (tau[name] * factor).minimum(_largest_threshold(r, lowest[name]))
        thresholds.append(scaled.clamp(min=TINY))
    return thresholds


def count_above(sizes: Mapping[str, Tensor], tau: Tensor) -> int:
    """Return the number of weights above the threshold of their layer."""
    layers = zip(sizes.values(), tau.detach().unbind(), strict=True)
    return sum(int(is_kept(r.detach(), t).sum()) for r, t in layers)


def target_count(
    layers: Sequence[LayerWeight],
    nonzeros: Mapping[str, int],
    lowest: Mapping[str, int],
    compression: float,
) -> int:
    """Return the number of weights that prunable layers may keep to reach a compression ratio.

    Layers that are excluded from pruning count toward the target too.

    Args:
        layers: All layer weights of the network.
        nonzeros: Number of nonzeros of each layer at present.
        lowest: The smallest number of weights that each prunable layer keeps.
        compression: Number of elements / number of nonzeros.

    Raises:
        InputError: The target is out of reach, or the network has it already.
    """
    elements = sum(layer.elements for layer in layers)
    excluded = sum(nonzeros[layer.name] for layer in layers if not layer.is_prunable)
    # A quotient may have been rounded down before.
    count = math.floor(elements / compression * (1 + 1e-12)) - excluded
    least = sum(lowest.values())
    present = sum(nonzeros.values())
    if count < least:
        raise InputError(
            f"compression {compression:g}× is out of reach: {excluded:,} weights are excluded from "
            f"pruning and layers keep at least {least:,} more, "
            f"so {elements / (excluded + least):.1f}× is the most",
            "set a lower target, lower method.min_layer_density, or exclude fewer layers",
        )
    if count + excluded >= present:
        raise InputError(
            f"the model already has compression {elements / present:.2f}×, "
            f"and the target is {compression:g}×",
            "set a target above the compression that the model has",
        )
    return count


def target_cost(
    layers: Sequence[LayerWeight],
    nonzeros: Mapping[str, int],
    lowest: Mapping[str, int],
    costs: WeightCosts,
) -> int:
    """Return what the weights of prunable layers may cost.

    Layers that are excluded from pruning count toward the budget too.

    Args:
        layers: All layer weights of the network.
        nonzeros: Number of nonzeros of each layer at present.
        lowest: The smallest number of weights that each prunable layer keeps.
        costs: The costs and the budget of all layers.

    Raises:
        InputError: A budget of multiply-adds is out of reach, or the network meets it already.
            Other budgets come from masks that meet them.
    """
    excluded, least, present = find_reachable(layers, nonzeros, lowest, costs.per_weight)
    if costs.kind == "multiply-adds":
        _check_multiply_adds(costs, excluded, least, present + excluded)
    return min(max(costs.budget - excluded, least), present)


def _check_multiply_adds(costs: WeightCosts, excluded: int, least: int, present: int) -> None:
    """Raise InputError if a target in multiply-adds is out of reach, or reached already.

    Args:
        costs: Multiply-adds of the weights, and how many may be left.
        excluded: Multiply-adds of the nonzeros that are excluded from pruning.
        least: The fewest multiply-adds that the other layers keep.
        present: Multiply-adds of all nonzeros at present.
    """
    total, target = costs.total, costs.budget
    if target < excluded + least:
        reachable = math.ceil((excluded + least) / total * 1e4) / 1e4
        raise InputError(
            f"{target:,} of {total:,} multiply-adds are out of reach: {excluded:,} belong to layers"
            f" that are excluded from pruning, and the others keep at least {least:,},"
            f" so {reachable:.4g} is the smallest fraction",
            "raise budget.target_macs, lower method.min_layer_density, or exclude fewer layers",
        )
    if target >= present:
        raise InputError(
            f"the model has only {present:,} of {total:,} multiply-adds already,"
            f" and the target is {target:,}",
            f"set budget.target_macs below {present / total:.4g}",
        )


def _largest_threshold(r: Tensor, lowest: int) -> Tensor:
    """Return the largest threshold that leaves `lowest` weights above it."""
    if lowest >= r.numel():
        return r.new_zeros(())
    return _kth_smallest(r.detach().square().flatten(), r.numel() - lowest)


def _threshold_ratios(
    sizes: Mapping[str, Tensor], tau: Mapping[str, Tensor], lowest: Mapping[str, int]
) -> tuple[Tensor, list[int]]:
    """Return r²/τ of all weights in one vector, and the number of weights of each layer.

    The ratio of a layer's `lowest` largest weights is infinite.
    """
    parts = []
    for name, r in sizes.items():
        ratio = r.detach().square().flatten() / tau[name]
        ratio[torch.topk(ratio, lowest[name], sorted=False).indices] = torch.inf
        parts.append(ratio)
    return torch.cat(parts), [p.numel() for p in parts]


def affordable_ratio(
    ratios: Tensor, lengths: Sequence[int], costs: Mapping[str, int], budget: int
) -> Tensor:
    """Return the smallest ratio above which weights cost at most `budget`, by bisection.

    Positive floats have the order of their bits, so 31 comparisons find the exact value.

    Args:
        ratios: r²/τ of all weights, float32.
        lengths: Number of weights of each layer.
        costs: Cost of one weight of each layer, in the same order.
        budget: The largest cost.
    """
    parts = torch.split(ratios.view(torch.int32), list(lengths))
    low = -1
    high = int(ratios.new_full((), torch.inf).view(torch.int32)) - 1
    while high - low > 1:
        middle = (low + high) // 2
        cost = sum(
            c * int((part > middle).sum()) for c, part in zip(costs.values(), parts, strict=True)
        )
        if cost <= budget:
            high = middle
        else:
            low = middle
    return torch.tensor(high, dtype=torch.int32, device=ratios.device).view(torch.float32)


def _mask_largest(values: Tensor, count: int) -> Tensor:
    """Return the mask of the `count` largest values; first ones win ties."""
    if not 0 < count < values.numel():
        return torch.full_like(values, count > 0, dtype=torch.bool)
    least = _kth_smallest(values.clone(), values.numel() - count + 1)
    mask = values > least
    ties = (values == least).nonzero().flatten()
    mask[ties[: count - int(mask.sum())]] = True
    return mask


def _kth_smallest(values: Tensor, k: int) -> Tensor:
    """Return the k-th smallest value; `values` may be reordered in place."""
    if values.device.type != "cpu":
        return values.kthvalue(k).values
    values.numpy().partition(k - 1)  # several times as fast as kthvalue
    return values[k - 1]
