"""What is read of a split, and what is not."""

from __future__ import annotations

import numpy as np

from ltp_pipeline.data.dataset import (
    MAX_INSPECTED_TARGETS,
    MAX_INSPECTED_VALUES,
    TARGET,
    ArraySamples,
    Split,
    SplitInput,
)
from ltp_pipeline.results.schema_parts import InputRecipe
from ltp_pipeline.system.arrays import Array


class Counted(ArraySamples):
    """Samples that count how many of them were read."""

    read = 0

    def take(self, indices: Array) -> Array:
        self.read += len(indices)
        return super().take(indices)


def split(targets: Array) -> tuple[Split, Counted, Counted]:
    x, y = Counted(np.zeros((len(targets), 1))), Counted(targets)
    return (
        Split(
            "train",
            {"x": SplitInput(x, InputRecipe(type="float64"))},
            {TARGET: y},
            np.arange(len(targets)),
        ),
        x,
        y,
    )


def test_sample_targets_reads_targets_once_and_no_inputs():
    data, x, y = split(np.arange(20))
    assert data.inspected_targets.tolist() == data.inspected_targets.tolist() == list(range(20))
    assert (x.read, y.read) == (0, 20)


def test_sample_targets_of_many_are_from_everywhere():
    data, _, y = split(np.arange(10 * MAX_INSPECTED_TARGETS))
    some = data.inspected_targets
    assert len(some) == y.read == MAX_INSPECTED_TARGETS
    assert (some[0], some[-1]) == (0, 10 * MAX_INSPECTED_TARGETS - 1)
    assert np.diff(some).max() <= 11


def test_sample_targets_of_large_ones_are_fewer():
    side = 2 ** ((MAX_INSPECTED_VALUES.bit_length() - 1) // 2 - 1)
    data, _, y = split(np.broadcast_to(np.uint8(1), (9, side, side)))
    assert len(data.inspected_targets) == y.read == 4
