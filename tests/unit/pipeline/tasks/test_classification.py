"""Right answers and their loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ltp_pipeline.data.dataset import TARGET
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.evaluator import Evaluator
from ltp_pipeline.tasks.losses import softened_divergence
from ltp_pipeline.tasks.protocol import TaskOutput
from tests.support.samples import by_position, split_of

SCORES = TaskOutput(0, "scores", "scores")


def test_top1_counts_the_label_that_scores_highest_and_the_first_among_equals():
    scores = np.array([[1, 2, 0], [3, 3, 0], [3, 3, 0], [np.nan, 0, 0]], np.float32)
    found, each = Evaluator(ClassificationTask(SCORES, classes=3))(
        by_position(lambda x: [x]), split_of(scores, np.array([1, 0, 1, 0]))
    )
    assert each[:, 0].tolist() == [True, True, False, False]
    assert (found.value, found.top1) == (0.5, 0.5)
    assert found.top5 is None


LOGITS, LABELS = torch.randn(8, 5), torch.randint(0, 5, (8,))


def test_probabilities_give_the_same_loss_as_the_scores_they_come_from():
    by_scores = ClassificationTask(SCORES, classes=5).compute_loss([LOGITS], {TARGET: LABELS}, None)
    by_probabilities = ClassificationTask(SCORES, classes=5, is_probability=True).compute_loss(
        [LOGITS.softmax(1)], {TARGET: LABELS}, None
    )
    assert by_scores.item() == pytest.approx(by_probabilities.item(), rel=1e-5)


def test_distillation_asks_nothing_of_a_student_that_is_its_teacher():
    loss = ClassificationTask(SCORES, classes=5, distillation_weight=1.0).compute_loss(
        [LOGITS], {TARGET: LABELS}, [LOGITS]
    )
    assert loss.item() == pytest.approx(0.0, abs=1e-6)


def test_the_share_of_distillation_mixes_the_two_losses():
    taught = torch.randn(8, 5)
    mixed = ClassificationTask(SCORES, classes=5, distillation_weight=0.25).compute_loss(
        [LOGITS], {TARGET: LABELS}, [taught]
    )
    expected = 0.75 * F.cross_entropy(LOGITS, LABELS) + 0.25 * softened_divergence(LOGITS, taught)
    assert mixed.item() == pytest.approx(expected.item(), rel=1e-6)


def test_a_guess_names_the_most_frequent_class():
    assert (
        ClassificationTask(SCORES, classes=8).chance_level(
            split_of(np.zeros((4, 1)), np.array([0, 3, 3, 7]))
        )
        == 0.5
    )


def test_smoothed_labels_name_every_class_a_little():
    found = ClassificationTask(SCORES, classes=5, label_smoothing=0.2).compute_loss(
        [LOGITS], {TARGET: LABELS}, None
    )
    wanted = 0.8 * F.one_hot(LABELS, 5) + 0.2 / 5
    assert found.item() == pytest.approx(
        -(wanted * LOGITS.log_softmax(1)).sum(1).mean().item(), rel=1e-5
    )
