"""What a user is told before training, and in the report, when the outcome is in doubt."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.config import TrainSettings
from ltp_pipeline.preparation import doubts


def training(samples: int = 10_000, labels: Any = (0, 1, 2, 3), **settings: Any) -> Any:
    val = SimpleNamespace(labels=None if labels is None else np.array(labels))
    return SimpleNamespace(data=SimpleNamespace(train=range(samples), val=val), settings=TrainSettings(**settings))


@pytest.mark.parametrize(
    ("accuracy", "labels", "doubtful"),
    [
        (0.30, (0, 1, 2, 3), True),
        (0.40, (0, 1, 2, 3), False),
        (0.76, (0, 0, 0, 1), True),
        (0.00, None, False),
    ],
)
def test_an_original_that_is_hardly_better_than_chance(accuracy: float, labels: Any, doubtful: bool) -> None:
    told = doubts(training(labels=labels), accuracy)
    assert bool(told) == doubtful
    assert all("check scale, mean, std and layout" in note for note in told)


def test_few_steps() -> None:
    (told,) = doubts(training(1_100, epochs=6), 0.9)
    assert "only 48 steps" in told
    assert not doubts(training(1_100, epochs=6, batch_size=32), 0.9)


def test_one_step_is_not_called_several() -> None:
    (told,) = doubts(training(100, epochs=1), 0.9)
    assert "in only 1 step:" in told
