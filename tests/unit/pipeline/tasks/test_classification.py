"""Top-1 accuracy and the losses of classification."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.data.dataset import TARGET, DatasetSplits
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.evaluator import Evaluator
from ltp_pipeline.tasks.labels import convert_one_hot
from ltp_pipeline.tasks.losses import softened_divergence
from ltp_pipeline.tasks.protocol import TaskOutput
from tests.support.samples import UnreadableSamples, by_position, split_of

SCORES = TaskOutput(0, "scores", "scores")
LOGITS, LABELS = torch.randn(8, 5), torch.randint(0, 5, (8,))


def loss_of(output: Tensor, teacher: Tensor | None = None, **settings: Any) -> float:
    task = ClassificationTask(SCORES, num_classes=5, **settings)
    teacher_outputs = None if teacher is None else [teacher]
    return float(task.compute_loss([output], {TARGET: LABELS}, teacher_outputs))


def test_top1_takes_the_first_of_equal_scores_and_never_nan():
    scores = np.array([[1, 2, 0], [3, 3, 0], [3, 3, 0], [np.nan, 0, 0]], np.float32)
    evaluator = Evaluator(ClassificationTask(SCORES, num_classes=3))
    split = split_of(scores, np.array([1, 0, 1, 0]))
    result, statistics = evaluator(by_position(lambda x: [x]), split)
    assert statistics[:, 0].tolist() == [True, True, False, False]
    assert (result.value, result.top1) == (0.5, 0.5)
    assert result.top5 is None


def test_label_loss_of_probabilities_equals_that_of_logits():
    of_probabilities = loss_of(LOGITS.softmax(1), is_probability=True)
    assert of_probabilities == pytest.approx(loss_of(LOGITS), rel=1e-5)


def test_compute_loss_mixes_labels_and_distillation_by_weight():
    teacher = torch.randn(8, 5)
    divergence = softened_divergence(LOGITS, teacher)
    expected = 0.75 * F.cross_entropy(LOGITS, LABELS) + 0.25 * divergence
    assert loss_of(LOGITS, teacher, distillation_weight=0.25) == pytest.approx(
        float(expected), rel=1e-6
    )


def test_label_smoothing_spreads_labels_over_all_classes():
    target = 0.8 * F.one_hot(LABELS, 5) + 0.2 / 5
    expected = -(target * LOGITS.log_softmax(1)).sum(1).mean()
    assert loss_of(LOGITS, label_smoothing=0.2) == pytest.approx(float(expected), rel=1e-5)


def test_chance_level_is_the_frequency_of_the_most_frequent_class():
    split = split_of(np.zeros((4, 1)), np.array([0, 3, 3, 7]))
    assert ClassificationTask(SCORES, num_classes=8).chance_level(split) == 0.5


def test_chance_level_of_converted_one_hot_labels_is_that_of_their_classes():
    split = split_of(np.zeros((4, 1)), np.eye(3)[[0, 2, 2, 1]], samples=UnreadableSamples)
    data = convert_one_hot(DatasetSplits(split, split, split, None, ""), axis=1)
    assert ClassificationTask(SCORES, num_classes=3).chance_level(data.val) == 0.5
