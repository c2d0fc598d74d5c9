"""Does a training step fit into memory? Told by what two samples leave for the backward pass."""

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
    network: Network, state: StateDict, inputs: Mapping[str, Tensor], samples: int, batch: int
) -> None:
    """Refuse a batch size of which the activations alone are larger than the memory; `inputs` are a few samples."""
    free = memory.available_memory()
    if free is None or any(x.device.type != "cpu" for x in inputs.values()):
        return  # another device has memory of its own, and says so itself
    try:
        with memory.limit_memory():
            each = saved_activation_bytes(network, state, inputs) / samples
    except NodeError as error:
        if not memory.is_shortage(error):
            raise
        what = f"training on {pluralize(samples, 'sample')} takes more than the {free / GIGABYTE:,.1f} GB that are free"
        raise InputError(f"{what}: {error}", "use a machine with more memory") from None
    if each * batch > free:
        sizes = f"{each * batch / GIGABYTE:,.1f} GB of activations, and {free / GIGABYTE:,.1f} GB are free"
        most = max(int(free / each / 2), 1)
        raise InputError(
            f"training on batches of {pluralize(batch, 'sample')} keeps {sizes}",
            f"set train.batch_size to {most} or less, or use a machine with more memory",
        )


def saved_activation_bytes(network: Network, state: StateDict, inputs: Mapping[str, Tensor]) -> int:
    """The bytes that a forward pass keeps for the backward pass, weights apart; moves no running statistics."""
    weights = {
        name: t.detach().requires_grad_(name in network.forward.weight_names)
        for name, t in state.items()
    }
    known = {t.untyped_storage().data_ptr() for t in (*weights.values(), *inputs.values())}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        outputs = network.forward(inputs, weights)
    del outputs  # only now: while it lives, no storage is used twice
    return sum(kept.values())
