"""Count how often each layer weight is multiplied in one sample: its cost in multiply-adds."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.graph.readers import find_readers
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.graph.weight_uses import compute_uses, find_observed_values
from ltp_pipeline.stages.import_model.network import Network, compile_observer


def count_uses(
    network: Network, state: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
) -> dict[str, int]:
    """Run a batch and count how often a weight of each layer is multiplied in one sample.

    A weight of a convolution is used at each position of its output, a weight of a recurrent layer
    in each step, and a weight of a fully connected layer once. Uses by several nodes add up.

    Args:
        network: The network.
        state: Its tensors by name.
        inputs: Inputs of a batch by name.

    Returns:
        Uses by name of the layer weight, at least 1, in graph order. Weights that are used inside
        a body, such as that of a Loop, are left out.
    """
    model, _ = flatten_model(network.file.model)
    observed = find_observed_values(network.layer_weights, find_readers(model.graph))
    top_level = {name for node in model.graph.node for name in (*node.input, *node.output)}
    names = sorted({v.name for values in observed.values() for v in values} & top_level)
    observer = compile_observer(model, names)
    samples = len(next(iter(inputs.values())))
    fixed_size = network.forward.batch_size
    if fixed_size is not None:  # the graph runs on batches of this size only
        rows = torch.arange(fixed_size) % samples
        inputs = {name: tensor[rows.to(tensor.device)] for name, tensor in inputs.items()}
        samples = fixed_size
    with torch.inference_mode():
        outputs = observer(inputs, state)
    outputs = outputs[len(outputs) - len(names) :]
    shapes = {name: tuple(value.shape) for name, value in zip(names, outputs, strict=True)}
    return compute_uses(observed, shapes, samples)


def count_multiply_adds(uses: Mapping[str, int], nonzeros: Mapping[str, int]) -> int:
    """Return the multiply-adds of one sample: the uses of all nonzeros."""
    return sum(uses[name] * count for name, count in nonzeros.items())


def count_cost(nonzeros: Mapping[str, int], costs: Mapping[str, int] | None) -> int:
    """Return what nonzeros of layers cost: their multiply-adds, or their number without costs."""
    return sum(nonzeros.values()) if costs is None else count_multiply_adds(costs, nonzeros)
