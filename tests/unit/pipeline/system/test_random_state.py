"""Random numbers of a user's code: by what it is called for, and apart from those of training."""

import random

import numpy as np
import pytest
import torch

from ltp_pipeline.system import random_state


def drawn() -> tuple[float, float, float]:
    return random.random(), np.random.rand(), float(torch.rand(1))  # noqa: S311 - no secret


def test_isolate_rng_same_parts_draw_the_same() -> None:
    draws = []
    for parts in ((1, "a"), (1, "a"), (2, "a"), (1, "b")):
        with random_state.isolate_rng(*parts):
            draws.append(drawn())
    assert draws[0] == draws[1]
    assert all(len({each[i] for each in draws}) == 3 for i in range(3))


def test_isolate_rng_restores_generators_after_errors() -> None:
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    expected = drawn()
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    with pytest.raises(ValueError, match="theirs"), random_state.isolate_rng(1):
        raise ValueError(f"theirs, {drawn()}")
    assert drawn() == expected
