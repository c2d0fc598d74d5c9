"""From thresholds to exact masks: which weights stay, to the count asked for, with no layer dying.

`sizes` is what stands for the sizes of weights, r of blocks.py: the weights themselves, or those of their blocks.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.layer_weights import BLOCK, LayerWeight
from ltp_pipeline.settings.schema import MethodSettings
from ltp_pipeline.stages.learn_thresholds.blocks import (
    NO_BLOCKS,
    BlockAxes,
    block_values,
    repeat_in_blocks,
)
from ltp_pipeline.stages.learn_thresholds.functional import is_kept

TINY = 1e-30  # a threshold that prunes nothing but zeros, and whose inverse is still finite


def min_kept_counts(
    kernels: Sequence[LayerWeight],
    present: Mapping[str, int],
    settings: MethodSettings,
    axes: BlockAxes = NO_BLOCKS,
) -> dict[str, int]:
    """Fewest weights each layer keeps: a share of its size, but at least a handful, so that signal gets through.

    In blocks, whole ones; `present` is what each layer has now, weights or those of blocks that are not zero.
    """
    wanted = {
        k.name: max(settings.floor_weights, math.ceil(settings.floor * k.elements)) for k in kernels
    }
    whole = {
        name: -(-floor // BLOCK) * BLOCK if name in axes else floor
        for name, floor in wanted.items()
    }
    return {name: min(floor, present[name]) for name, floor in whole.items()}


def keep_above(w: Tensor, tau: Tensor | float, floor: int) -> Tensor:
    """Mask of eq. (9), w² > τ, widened to the `floor` largest weights where fewer would stay."""
    mask = is_kept(w, tau)
    if int(mask.sum()) >= floor:
        return mask
    return keep_largest(w, floor)


def keep_largest(w: Tensor, count: int) -> Tensor:
    """Mask of exactly the `count` weights that are largest in size; the first ones among equals."""
    return _mask_largest(w.abs().flatten(), count).view_as(w)


def keep_exactly(
    sizes: Mapping[str, Tensor],
    tau: Mapping[str, Tensor],
    lowest: Mapping[str, int],
    count: int,
    axes: BlockAxes = NO_BLOCKS,
) -> dict[str, Tensor]:
    """Masks that keep exactly `count` weights: each layer's `lowest` largest, then those largest in r²/τ.

    Of the last block that would be kept in part nothing is: then up to BLOCK - 1 fewer weights stay.
    """
    ratio, lengths = _threshold_ratios(sizes, tau, lowest)
    kept = torch.split(_mask_largest(ratio, count), lengths)
    masks = {n: part.view_as(r) for (n, r), part in zip(sizes.items(), kept, strict=True)}
    return {
        n: whole_block_mask(mask, sizes[n], axes[n]) if n in axes else mask
        for n, mask in masks.items()
    }


def whole_block_mask(mask: Tensor, r: Tensor, axis: int) -> Tensor:
    """Mask of the largest blocks, as many as the weights that a mask keeps make; the first ones among equals.

    A mask by size keeps whole blocks but for the last, unless several are equal: then it may keep a part of each.
    """
    return repeat_in_blocks(keep_largest(block_values(r, axis), int(mask.sum()) // BLOCK), axis)


def scale_thresholds(
    sizes: Mapping[str, Tensor], tau: Mapping[str, Tensor], lowest: Mapping[str, int], count: int
) -> list[Tensor]:
    """Thresholds times the common factor that leaves `count` weights above them, lowered to where a floor needs it."""
    ratio, _ = _threshold_ratios(sizes, tau, lowest)
    below = ratio.numel() - count
    factor = _kth_smallest(ratio, below) if below > 0 else ratio.new_zeros(())
    if not factor > 0:  # nothing to prune but what is zero already
        factor = ratio[ratio > 0].min() / 2
    return [
        (tau[n] * factor).minimum(_largest_threshold(r, lowest[n])).clamp(min=TINY)
        for n, r in sizes.items()
    ]


def count_above(sizes: Mapping[str, Tensor], tau: Tensor) -> int:
    """Weights above their layer's threshold."""
    layers = zip(sizes.values(), tau.detach().unbind(), strict=True)
    return sum(int(is_kept(r.detach(), t).sum()) for r, t in layers)


def _largest_threshold(r: Tensor, floor: int) -> Tensor:
    """Largest threshold that leaves `floor` weights above it."""
    if floor >= r.numel():
        return r.new_zeros(())
    return _kth_smallest(r.detach().square().flatten(), r.numel() - floor)


def _threshold_ratios(
    sizes: Mapping[str, Tensor], tau: Mapping[str, Tensor], lowest: Mapping[str, int]
) -> tuple[Tensor, list[int]]:
    """r²/τ of all weights in one vector, infinite for each layer's `lowest` largest; and the layers' numbers."""
    parts = []
    for name, r in sizes.items():
        ratio = r.detach().square().flatten() / tau[name]
        ratio[torch.topk(ratio, lowest[name], sorted=False).indices] = torch.inf
        parts.append(ratio)
    return torch.cat(parts), [p.numel() for p in parts]


def _mask_largest(values: Tensor, count: int) -> Tensor:
    """Which values are the `count` largest; the first ones among equals."""
    if not 0 < count < values.numel():
        return torch.full_like(values, count > 0, dtype=torch.bool)
    least = _kth_smallest(values.clone(), values.numel() - count + 1)
    mask = values > least
    equal = (values == least).nonzero().flatten()
    mask[equal[: count - int(mask.sum())]] = True
    return mask


def _kth_smallest(values: Tensor, k: int) -> Tensor:
    """The k-th smallest value; `values` may be put in another order."""
    if values.device.type != "cpu":
        return values.kthvalue(k).values
    values.numpy().partition(k - 1)  # several times as fast as kthvalue
    return values[k - 1]


def target_nonzeros(
    kernels: Sequence[LayerWeight],
    nonzeros: Mapping[str, int],
    lowest: Mapping[str, int],
    compression: float,
) -> int:
    """How many weights of the prunable kernels may stay so that the whole model has this compression.

    Kernels that are not pruned weigh on the target too; `nonzeros` is what every kernel has now.
    """
    elements = sum(k.elements for k in kernels)
    others = sum(nonzeros[k.name] for k in kernels if not k.prunable)
    count = (
        math.floor(elements / compression * (1 + 1e-12)) - others
    )  # a quotient may have been rounded down before
    least = sum(lowest.values())
    if count < least:
        raise InputError(
            f"compression {compression:g}× is out of reach: {others:,} weights are not prunable and the floors keep "
            f"{least:,} more, so {elements / (others + least):.1f}× is the most",
            "ask for less, lower method.floor, or exclude fewer kernels",
        )
    present = sum(nonzeros.values())
    if count + others >= present:
        raise InputError(
            f"the model already has compression {elements / present:.2f}×, and {compression:g}× was asked for",
            "ask for more than it has",
        )
    return count
