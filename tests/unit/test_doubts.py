"""What a user is told before training, and in the report, when the outcome is in doubt."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.config import TrainSettings, epochs_for
from ltp_pipeline.preparation import about_epochs, doubts


def training(samples: int = 10_000, labels: Any = (0, 1, 2, 3), **settings: Any) -> Any:
    val = SimpleNamespace(labels=None if labels is None else np.array(labels))
    train = TrainSettings(**settings)
    epochs, finetune_epochs = epochs_for(train, samples)
    data = SimpleNamespace(train=range(samples), val=val)
    return SimpleNamespace(data=data, settings=train, epochs=epochs, finetune_epochs=finetune_epochs)


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


@pytest.mark.parametrize(
    ("samples", "given", "expected"),
    [
        (60_000, {}, (12, 6)),  # 468 steps an epoch
        (5_000, {}, (13, 7)),  # 39 steps an epoch: 500 steps of learning
        (512, {}, (125, 63)),
        (100, {}, (500, 250)),  # less than a batch is one step
        (512, {"epochs": 3}, (3, 2)),
        (512, {"finetune_epochs": 0}, (125, 0)),
        (512, {"epochs": 3, "finetune_epochs": 9}, (3, 9)),
        (512, {"batch_size": 32}, (32, 16)),
    ],
)
def test_few_samples_get_more_epochs_and_a_number_given_is_obeyed(
    samples: int, given: dict[str, int], expected: tuple[int, int]
) -> None:
    assert epochs_for(TrainSettings(**given), samples) == expected


def test_more_epochs_than_usual_are_told() -> None:
    (told,) = about_epochs(training(512))
    assert "125 epochs" in told
    assert "752 steps" in told
    assert not about_epochs(training(60_000))
    assert not about_epochs(training(512, epochs=125))
