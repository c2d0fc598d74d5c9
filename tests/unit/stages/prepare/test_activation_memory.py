"""A batch whose activations do not fit into memory is rejected before training."""

import re

import pytest
import torch

from ltp_pipeline.errors import InputError
from ltp_pipeline.stages.prepare.activation_memory import (
    check_activation_memory,
    saved_activation_bytes,
)
from ltp_pipeline.system import memory
from tests.support.imported import import_network
from tests.support.models import conv_bn_classifier

SAMPLES = 2


def saved_bytes(size: int) -> int:
    network, state = import_network(conv_bn_classifier(4))
    return saved_activation_bytes(network, state, {"x": torch.zeros(SAMPLES, 1, size, size)})


def test_saved_activation_bytes_grow_with_maps_and_exclude_weights() -> None:
    small, large = saved_bytes(8), saved_bytes(16)
    assert 8 * 8 * 4 * SAMPLES < small < 100 * 8 * 8 * 4 * SAMPLES
    assert 3.3 < large / small < 4.1


def test_saved_activation_bytes_leaves_running_statistics_unchanged() -> None:
    network, state = import_network(conv_bn_classifier(4))
    before = {name: tensor.clone() for name, tensor in state.items()}
    saved_activation_bytes(network, state, {"x": torch.randn(SAMPLES, 1, 8, 8)})
    assert all(torch.equal(state[name], tensor) for name, tensor in before.items())


def test_check_activation_memory_too_large_batch_suggests_a_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, state = import_network(conv_bn_classifier(4))
    inputs = {"x": torch.zeros(SAMPLES, 1, 8, 8)}
    sample_bytes = saved_activation_bytes(network, state, inputs) / SAMPLES
    monkeypatch.setattr(memory, "available_memory", lambda: int(50 * sample_bytes))
    monkeypatch.setattr(memory, "USABLE_FRACTION", 1e6)
    check_activation_memory(network, state, inputs, SAMPLES, 49)
    with pytest.raises(InputError) as caught:
        check_activation_memory(network, state, inputs, SAMPLES, 51)
    assert "51 samples" in caught.value.message
    assert "train.batch_size" in caught.value.hint
    assert 20 <= int(re.findall(r"\d+", caught.value.hint)[0]) < 30
