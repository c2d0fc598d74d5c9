"""Check before training that the activations of a step fit into memory."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.errors import InputError
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.system import memory
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.memory import GIGABYTE
from ltp_pipeline.system.text import pluralize


def check_activation_memory(
    network: Network,
    state: StateDict,
    inputs: Mapping[str, Tensor],
    num_samples: int,
    batch_size: int,
) -> None:
    """Raise InputError if the activations of a batch alone are larger than the free memory.

    Args:
        network: The network.
        state: Its weights.
        inputs: Inputs of a few samples, whose activations are counted.
        num_samples: Number of these samples.
        batch_size: Number of samples in a training step of this process.
    """
    free = memory.available_memory()
    if free is None or any(x.device.type != "cpu" for x in inputs.values()):
        return  # another device has its own memory, and raises an error itself
    free_text = f"{free / GIGABYTE:,.1f} GB"
    try:
        with memory.limit_memory():
            sample_bytes = saved_activation_bytes(network, state, inputs) / num_samples
    except NodeError as error:
        if not memory.is_shortage(error):
            raise
        raise InputError(
            f"training on {pluralize(num_samples, 'sample')} takes more than the {free_text} that "
            f"are free: {error}",
            "use a machine with more memory",
        ) from None
    batch_bytes = sample_bytes * batch_size
    if batch_bytes > free:
        suggested = max(int(free / sample_bytes / 2), 1)
        raise InputError(
            f"training on batches of {pluralize(batch_size, 'sample')} keeps "
            f"{batch_bytes / GIGABYTE:,.1f} GB of activations, and {free_text} are free",
            f"set train.batch_size to {suggested} or less, or use a machine with more memory",
        )


def saved_activation_bytes(network: Network, state: StateDict, inputs: Mapping[str, Tensor]) -> int:
    """Return the bytes that a forward pass saves for the backward pass, without the weights.

    Running statistics do not change.
    """
    trained = network.forward.weight_names
    weights = {name: t.detach().requires_grad_(name in trained) for name, t in state.items()}
    not_counted = {t.untyped_storage().data_ptr() for t in (*weights.values(), *inputs.values())}
    saved: dict[int, int] = {}

    def count_storage(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in not_counted:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(count_storage, lambda tensor: tensor)
    with torch.enable_grad(), hooks:
        outputs = network.forward(inputs, weights)
    del outputs  # until here, so that no storage is used for a second tensor
    return sum(saved.values())
