"""The trail: an entry for each network met, in the order of epochs."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ltp_pipeline.stages.learn_thresholds import trail
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.system.arrays import StateDict


def test_trail_repeated_epoch_replaces_its_entry(
    started: tuple[RunContext, StateDict],
):
    context, state = started
    none: Any = SimpleNamespace(layer_weights={}, tau=torch.zeros(0), T=torch.zeros(0))
    for epoch in (0, 1, 2, 1):
        entry = trail.add_entry(context, state, none, epoch)
        assert (entry.entry, entry.epoch) == (epoch + 1, epoch + 1)
        assert context.run_directory.root.joinpath(entry.file) == context.run_directory.trail_path(
            epoch + 1
        )
    assert [e.entry for e in trail.read_entries(context.run_directory)] == [1, 2]
    assert [e.entry for e in trail.read_entries(context.run_directory, before=2)] == [1]


def test_trail_entry_has_the_compression_of_its_network(started: tuple[RunContext, StateDict]):
    context, state = started
    layer = max(context.network.layer_weights, key=lambda layer: layer.elements)
    weight = state[layer.name].clone()
    weight.flatten()[: layer.elements // 2] = 0.0
    none: Any = SimpleNamespace(layer_weights={}, tau=torch.zeros(0), T=torch.zeros(0))
    entry = trail.add_entry(context, {**state, layer.name: weight}, none, 0)
    elements = sum(each.elements for each in context.network.layer_weights)
    zeros = int((weight == 0).sum())
    assert entry.compression == pytest.approx(elements / (elements - zeros), rel=1e-3)
