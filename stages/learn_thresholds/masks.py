"""From thresholds to exact masks: which weights stay, to the count asked for, with no layer dying."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ltp_pipeline.config import MethodSettings
from ltp_pipeline.errors import InputError
from ltp_pipeline.records import Kernel
from ltp_pipeline.stages.learn_thresholds.functional import is_kept

TINY = 1e-30  # a threshold that prunes nothing but zeros, and whose inverse is still finite


def floors(kernels: Sequence[Kernel], nonzeros: Mapping[str, int], settings: MethodSettings) -> dict[str, int]:
    """Fewest weights each layer keeps: a share of its size, but at least a handful, so that signal gets through."""
    wanted = {k.name: max(settings.floor_weights, math.ceil(settings.floor * k.elements)) for k in kernels}
    return {name: min(floor, nonzeros[name]) for name, floor in wanted.items()}


def keep_above(w: Tensor, tau: Tensor | float, floor: int) -> Tensor:
    """Mask of eq. (9), w² > τ, widened to the `floor` largest weights where fewer would stay."""
    mask = is_kept(w, tau)
    if int(mask.sum()) >= floor:
        return mask
    return keep_largest(w, floor)


def keep_largest(w: Tensor, count: int) -> Tensor:
    """Mask of exactly the `count` weights that are largest in size; the first ones among equals."""
    return _largest(w.abs().flatten(), count).view_as(w)


def keep_exactly(
    weights: Mapping[str, Tensor], tau: Mapping[str, Tensor], lowest: Mapping[str, int], count: int
) -> dict[str, Tensor]:
    """Masks that keep exactly `count` weights: each layer's `lowest` largest, then those largest in w²/τ."""
    ratio, sizes = _ratios(weights, tau, lowest)
    kept = _largest(ratio, count)
    return {n: part.view_as(w) for (n, w), part in zip(weights.items(), torch.split(kept, sizes), strict=True)}


def thresholds_for(
    weights: Mapping[str, Tensor], tau: Mapping[str, Tensor], lowest: Mapping[str, int], count: int
) -> list[Tensor]:
    """Thresholds times the common factor that leaves `count` weights above them, lowered to where a floor needs it."""
    ratio, _ = _ratios(weights, tau, lowest)
    below = ratio.numel() - count
    factor = _kth_smallest(ratio, below) if below > 0 else ratio.new_zeros(())
    if not factor > 0:  # nothing to prune but what is zero already
        factor = ratio[ratio > 0].min() / 2
    return [(tau[n] * factor).minimum(_edge(w, lowest[n])).clamp(min=TINY) for n, w in weights.items()]


def count_above(weights: Mapping[str, Tensor], tau: Tensor) -> int:
    """Weights above their layer's threshold."""
    layers = zip(weights.values(), tau.detach().unbind(), strict=True)
    return sum(int(is_kept(w.detach(), t).sum()) for w, t in layers)


def _edge(w: Tensor, floor: int) -> Tensor:
    """Largest threshold that leaves `floor` weights above it."""
    if floor >= w.numel():
        return w.new_zeros(())
    return _kth_smallest(w.detach().square().flatten(), w.numel() - floor)


def _ratios(
    weights: Mapping[str, Tensor], tau: Mapping[str, Tensor], lowest: Mapping[str, int]
) -> tuple[Tensor, list[int]]:
    """w²/τ of all weights in one vector, infinite for each layer's `lowest` largest; and the layers' sizes."""
    parts = []
    for name, w in weights.items():
        ratio = w.detach().square().flatten() / tau[name]
        ratio[torch.topk(ratio, lowest[name], sorted=False).indices] = torch.inf
        parts.append(ratio)
    return torch.cat(parts), [p.numel() for p in parts]


def _largest(values: Tensor, count: int) -> Tensor:
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


def wanted_nonzeros(
    kernels: Sequence[Kernel], nonzeros: Mapping[str, int], lowest: Mapping[str, int], compression: float
) -> int:
    """How many weights of the prunable kernels may stay so that the whole model has this compression.

    Kernels that are not pruned weigh on the target too; `nonzeros` is what every kernel has now.
    """
    elements = sum(k.elements for k in kernels)
    others = sum(nonzeros[k.name] for k in kernels if not k.prunable)
    count = math.floor(elements / compression * (1 + 1e-12)) - others  # a quotient may have been rounded down before
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
