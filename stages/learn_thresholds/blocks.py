"""Pruning of whole blocks: BLOCK neighboring output channels at one position live and die together.

Whatever is decided by the size of a weight is decided by a tensor r of the same shape, equation
(R8). For a layer that is pruned weight by weight, r is the weight itself. For a layer that is
pruned in blocks, r is the root mean square of the block, repeated for each weight of the block.
"""

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from ltp_pipeline.graph.layer_weights import BLOCK_SIZE

# The axis of the output channels of each layer that is pruned in blocks. Layers without an entry
# are pruned weight by weight.
BlockAxes = Mapping[str, int]
NO_BLOCKS: BlockAxes = MappingProxyType({})


def weight_sizes(weights: Mapping[str, Tensor], axes: BlockAxes) -> dict[str, Tensor]:
    """Return r of each layer: the tensor by which the size of its weights is compared."""
    return {n: block_sizes(w, axes[n]) if n in axes else w for n, w in weights.items()}


@torch.no_grad()
def block_sizes(w: Tensor, axis: int) -> Tensor:
    """Return r = √(mean of w² over its block), equal for all weights of a block. (R8)."""
    return repeat_in_blocks(_split_blocks(w, axis).square().mean(axis + 1).sqrt(), axis)


def block_values(r: Tensor, axis: int) -> Tensor:
    """Return one value for each block of a tensor that is constant within blocks."""
    return _split_blocks(r, axis).select(axis + 1, 0)


def repeat_in_blocks(values: Tensor, axis: int) -> Tensor:
    """Repeat one value for each block over the weights of the block."""
    shape = [*values.shape[: axis + 1], BLOCK_SIZE, *values.shape[axis + 1 :]]
    return values.unsqueeze(axis + 1).expand(shape).flatten(axis, axis + 1)


def _split_blocks(w: Tensor, axis: int) -> Tensor:
    """Return a view whose axis `axis + 1` runs over the weights of one block."""
    return w.view(*w.shape[:axis], -1, BLOCK_SIZE, *w.shape[axis + 1 :])
