"""A batch that cannot fit into memory is refused before training, with the sizes."""

import pytest
import torch

from ltp_pipeline.errors import InputError
from ltp_pipeline.stages.prepare import activation_memory
from ltp_pipeline.system import memory
from tests.support.imported import imported
from tests.support.models import conv_bn_classifier

SAMPLES = 2


def kept(size: int) -> int:
    network, state = imported(conv_bn_classifier(4))
    return activation_memory.saved_activation_bytes(
        network, state, {"x": torch.zeros(SAMPLES, 1, size, size)}
    )


def test_activations_grow_with_the_maps_and_weights_do_not_count() -> None:
    once, twice = kept(8), kept(16)
    assert 8 * 8 * 4 * SAMPLES < once < 100 * 8 * 8 * 4 * SAMPLES
    assert 3.3 < twice / once < 4.1


def test_counting_moves_no_running_statistics() -> None:
    network, state = imported(conv_bn_classifier(4))
    before = {name: tensor.clone() for name, tensor in state.items()}
    activation_memory.saved_activation_bytes(network, state, {"x": torch.randn(SAMPLES, 1, 8, 8)})
    assert all(torch.equal(state[name], tensor) for name, tensor in before.items())


def test_the_largest_batch_that_fits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    network, state = imported(conv_bn_classifier(4))
    inputs = {"x": torch.zeros(SAMPLES, 1, 8, 8)}
    each = activation_memory.saved_activation_bytes(network, state, inputs) / SAMPLES
    monkeypatch.setattr(memory, "available_memory", lambda: int(50 * each))
    monkeypatch.setattr(memory, "USABLE_FRACTION", 1e6)
    activation_memory.check_activation_memory(network, state, inputs, SAMPLES, 49)
    with pytest.raises(InputError, match="batches of 51 samples") as error:
        activation_memory.check_activation_memory(network, state, inputs, SAMPLES, 51)
    assert "batch_size to 2" in error.value.hint
