"""The trail: an entry for each network met, in the order of epochs."""

from types import SimpleNamespace
from typing import Any

import torch

from ltp_pipeline.stages.learn_thresholds import trail
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.system.arrays import StateDict


def test_entries_are_counted_from_one_and_an_epoch_done_again_takes_the_place_of_what_came_of_it(
    started: tuple[RunContext, StateDict],
):
    job, state = started
    none: Any = SimpleNamespace(layer_weights={}, tau=torch.zeros(0), T=torch.zeros(0))
    for epoch in (0, 1, 2, 1):
        entry = trail.add_entry(job, state, none, epoch)
        assert (entry.entry, entry.epoch) == (epoch + 1, epoch + 1)
        assert job.workspace.root.joinpath(entry.file) == job.workspace.trail_path(epoch + 1)
    assert [e.entry for e in trail.read_entries(job.workspace)] == [1, 2]
    assert [e.entry for e in trail.read_entries(job.workspace, before=2)] == [1]
