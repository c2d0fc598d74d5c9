"""Trials of the original with other settings, and classes in another order."""

from dataclasses import replace

import numpy as np
import pytest

from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.settings.schema import DataSettings, TaskSettings
from ltp_pipeline.stages.prepare.trials import Trial, match_classes, reorder_classes, select_best
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.protocol import TaskOutput
from tests.support.samples import split_of

RNG = np.random.default_rng(0)


def trial_of(labels: np.ndarray, predictions: np.ndarray, num_classes: int) -> Trial:
    """An evaluated trial with these predictions."""
    split = split_of(np.zeros((len(labels), 1)), labels, "val")
    data = DatasetSplits(split, split, split, num_classes, "")
    task = ClassificationTask(TaskOutput(0, "y", "scores"), num_classes=num_classes)
    is_correct = labels == predictions
    statistics = np.stack([is_correct, is_correct], axis=1)
    value = float(is_correct.mean())
    trial = Trial(data, task, TaskSettings(), split, {}, value=value, statistics=statistics)
    return replace(trial, predictions=predictions)


def test_evaluate_runs_the_model_on_some_samples_with_predictions():
    labels = RNG.integers(0, 3, 700)
    scores = np.eye(3)[labels]
    scores[0] = np.nan
    trial = replace(trial_of(labels, labels, 3), split=split_of(scores, labels), predictions=None)
    evaluated = trial.evaluate(lambda _: lambda inputs: [inputs["x"]])
    assert evaluated.predictions is not None
    assert evaluated.num_samples == len(evaluated.predictions) == len(trial.rows) == 512
    finite = trial.rows > 0
    np.testing.assert_array_equal(evaluated.predictions[finite], labels[trial.rows][finite])


@pytest.mark.parametrize(
    ("accuracy", "other_accuracy", "num_samples", "expected"),
    [
        (0.9, 0.2, 500, True),
        (0.3, 0.25, 500, False),  # a small part of the distance to 1
        (0.9, 0.2, 6, False),  # may be luck
        (0.2, 0.05, 500, False),  # below chance
    ],
)
def test_is_clearly_better_than_requires_size_and_significance(
    accuracy, other_accuracy, num_samples, expected
):
    labels = np.arange(num_samples) % 5

    def accurate(fraction: float) -> Trial:
        is_correct = np.arange(num_samples) < fraction * num_samples
        return trial_of(labels, np.where(is_correct, labels, (labels + 1) % 5), 5)

    assert accurate(accuracy).is_clearly_better_than(accurate(other_accuracy)) == expected


def test_select_best_prefers_the_first_of_similar_trials():
    labels = np.arange(500) % 5
    bad, good, similar = (
        trial_of(labels, np.where(np.arange(500) < count, labels, (labels + 1) % 5), 5)
        for count in (50, 440, 445)
    )
    assert select_best([bad, good, similar]) is good


def test_is_clearly_better_than_requires_more_of_a_trial_with_more_changes():
    labels = np.arange(500) % 5
    good, better = (
        trial_of(labels, np.where(np.arange(500) < count, labels, (labels + 1) % 5), 5)
        for count in (460, 480)
    )
    assert better.is_clearly_better_than(good)
    assert not replace(better, changes=("scale = 2",)).is_clearly_better_than(good)


def test_match_classes_takes_the_most_frequent_prediction():
    labels = RNG.integers(0, 5, 400)
    order = np.array([3, 0, 4, 1, 2])
    predictions = np.where(RNG.random(400) < 0.7, order[labels], RNG.integers(0, 5, 400))
    np.testing.assert_array_equal(match_classes(labels, predictions, 5), order)


def test_match_classes_uses_no_class_twice_and_keeps_unseen_ones():
    labels, predictions = np.array([0, 0, 1, 1, 1]), np.array([2, 2, 2, 2, 2])
    order = match_classes(labels, predictions, 4)
    assert sorted(order) == [0, 1, 2, 3]
    assert (order[1], order[3]) == (2, 3)


def test_reorder_classes_finds_the_order_and_names_the_setting():
    order = np.array([2, 0, 3, 1])
    labels = np.sort(RNG.integers(0, 4, 300))
    trial = trial_of(labels, order[labels], 4)
    reordered = reorder_classes(trial, DataSettings())
    assert reordered is not None
    assert reordered.value == 1.0
    assert reordered.is_clearly_better_than(trial)
    assert reordered.hints == ("set classes = { 0 = 2, 1 = 0, 2 = 3, 3 = 1 } in [data]",)


def test_reorder_classes_of_random_predictions_is_not_better():
    """With many classes, chance alone finds an order that fits the samples it was chosen by."""
    labels, predictions = RNG.integers(0, 50, 512), RNG.integers(0, 50, 512)
    fitted = match_classes(labels, predictions, 50)[labels]
    assert (fitted == predictions).mean() > 0.1
    trial = trial_of(labels, predictions, 50)
    reordered = reorder_classes(trial, DataSettings())
    assert reordered is not None
    assert reordered.value is not None
    assert reordered.value < 0.1
    assert not reordered.is_clearly_better_than(trial)
