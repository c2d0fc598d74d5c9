"""Weights that are pruned together: those of BLOCK neighbouring output channels at the same position. (R8).

All that is decided by the size of a weight is decided by a tensor r of the same shape instead: the weights themselves
where they are pruned one by one, the root mean square of its block for each weight of a kernel in blocks.
"""

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from ltp_pipeline.graph.layer_weights import BLOCK

BlockAxes = Mapping[
    str, int
]  # of the output channels of kernels in blocks; kernels without one have single weights
NO_BLOCKS: BlockAxes = MappingProxyType({})


def weight_sizes(weights: Mapping[str, Tensor], axes: BlockAxes) -> dict[str, Tensor]:
    """What stands for the sizes of weights: r of each kernel."""
    return {n: block_sizes(w, axes[n]) if n in axes else w for n, w in weights.items()}


@torch.no_grad()
def block_sizes(w: Tensor, axis: int) -> Tensor:
    """r = √(mean of w² over its block), the same for all weights of a block. (R8)."""
    return repeat_in_blocks(_split_blocks(w, axis).square().mean(axis + 1).sqrt(), axis)


def block_values(r: Tensor, axis: int) -> Tensor:
    """One value for each block, of a tensor that is constant in blocks."""
    return _split_blocks(r, axis).select(axis + 1, 0)


def repeat_in_blocks(values: Tensor, axis: int) -> Tensor:
    """One value for each block, repeated over its weights."""
    shape = [*values.shape[: axis + 1], BLOCK, *values.shape[axis + 1 :]]
    return values.unsqueeze(axis + 1).expand(shape).flatten(axis, axis + 1)


def _split_blocks(w: Tensor, axis: int) -> Tensor:
    return w.view(*w.shape[:axis], -1, BLOCK, *w.shape[axis + 1 :])
