"""Global magnitude pruning, the comparison: the smallest weights of the whole network go at once, the rest is trained.

Same kernels, same blocks, same count of nonzeros, same total epochs, batches and loss as the learned result. Further
points of its curve differ in the count alone; beside blocks, one point has single weights.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from ltp_pipeline.graph.layer_weights import BLOCK, block_axes, makers
from ltp_pipeline.results.records import PrunedNetwork
from ltp_pipeline.stages import finetune
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.learn_thresholds.blocks import NO_BLOCKS, BlockAxes, weight_sizes
from ltp_pipeline.stages.learn_thresholds.masks import keep_exactly
from ltp_pipeline.stages.prune import apply_masks, count_nonzeros
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.stages.train.statistics import refresh_statistics
from ltp_pipeline.system.arrays import StateDict

# What people and the log call the training of its first point, of others, and of single weights beside blocks
FIRST, LATER, UNSTRUCTURED = "baseline", "curve", "single"


def point_key(point: int | str, spares_classifier: bool) -> str:
    """Name of the checkpoint, the log lines and the kept weights of a point: its number, counted from 1, or SINGLE."""
    return "-".join(
        (FIRST, *(["spared"] if spares_classifier else []), *([] if point == 1 else [str(point)]))
    )


def run(
    context: RunContext,
    original: StateDict,
    nonzeros: int,
    epochs: int,
    name: str = FIRST,
    key: str = FIRST,
    spared: Collection[str] = (),
    axes: BlockAxes | None = None,
) -> PrunedNetwork:
    """Prune the original once to as many `nonzeros` over all kernels, then train for `epochs`; in the job's blocks."""
    axes = block_axes_of(context) if axes is None else axes
    masks = global_magnitude_masks(context.network, original, nonzeros, spared, axes)
    state = refresh_statistics(context, apply_masks(original, masks))
    count = sum(count_nonzeros(context.network, state).values())
    return finetune.run(
        context, PrunedNetwork(state, masks, count, {"prune": 0, "finetune": 0}), epochs, name, key
    )


def planned_epochs(context: RunContext, count: int) -> dict[str, int]:
    """Epochs of the trainings that are sure to come, where each takes so many: that of single weights beside blocks."""
    return dict.fromkeys((FIRST, UNSTRUCTURED) if block_axes_of(context) else (FIRST,), count)


def block_axes_of(context: RunContext) -> BlockAxes:
    """The kernels that the job prunes in blocks."""
    return block_axes(context.network.kernels, context.settings.method.block)


def probe_accuracy(context: RunContext, original: StateDict, nonzeros: int) -> float:
    """Accuracy on the validation split of the original, pruned at once and not trained."""
    state = apply_masks(
        original,
        global_magnitude_masks(context.network, original, nonzeros, axes=block_axes_of(context)),
    )
    return evaluate_metric(context, refresh_statistics(context, state), context.data.val)


def global_magnitude_masks(
    network: Network,
    state: StateDict,
    nonzeros: int,
    spared: Collection[str] = (),
    axes: BlockAxes = NO_BLOCKS,
) -> dict[str, Tensor]:
    """Keep the weights largest in size over all prunable kernels, with no regard for layers; all of those `spared`."""
    rs = weight_sizes({k.name: state[k.name] for k in network.prunable}, axes)
    present = count_nonzeros(network, state)
    others = sum(present[k.name] for k in network.kernels if not k.prunable)
    lowest = {name: int(r.count_nonzero()) if name in spared else 0 for name, r in rs.items()}
    return keep_exactly(rs, dict.fromkeys(rs, torch.ones(())), lowest, nonzeros - others, axes)


def find_classifier(context: RunContext) -> set[str]:
    """The prunable kernels that make the judged outputs."""
    graph = context.network.file.model.graph
    return makers(graph, [output.name for output in context.task.outputs], context.network.prunable)


def min_nonzeros(
    network: Network, state: StateDict, spared: Collection[str] = (), axes: BlockAxes = NO_BLOCKS
) -> int:
    """Nonzeros of all kernels where pruning leaves each kernel that is not `spared` one weight, or one block."""
    present = count_nonzeros(network, state)
    least = {
        k.name: BLOCK if k.name in axes else 1 for k in network.prunable if k.name not in spared
    }
    return sum(least.get(k.name, present[k.name]) for k in network.kernels)
