"""Metrics of labelled tasks beside scikit-learn's, their losses, and how sure a drop is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from ltp_pipeline.data.dataset import TARGET, Batch
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.multilabel import MultilabelTask, average_precision
from ltp_pipeline.tasks.positions import PositionTask
from ltp_pipeline.tasks.protocol import EvaluatedBatch, TaskOutput
from ltp_pipeline.tasks.regression import RegressionTask
from ltp_pipeline.tasks.segmentation import SegmentationTask
from ltp_pipeline.tasks.supervised import SupervisedTask
from tests.support.samples import split_of, unread

Y = TaskOutput(0, "y", "values")
RNG = np.random.default_rng(0)
TASKS: Sequence[tuple[SupervisedTask, np.ndarray, np.ndarray]] = (
    (ClassificationTask(Y, classes=4), RNG.normal(size=(9, 4)), RNG.integers(0, 4, 9)),
    (
        ClassificationTask(Y, classes=2, is_single=True),
        RNG.normal(size=(9, 1)),
        RNG.integers(0, 2, 9),
    ),
    (ClassificationTask(Y, classes=2, is_single=True), RNG.normal(size=9), RNG.integers(0, 2, 9)),
    (PositionTask(Y, classes=4, axis=2), RNG.normal(size=(9, 5, 4)), RNG.integers(0, 4, (9, 5))),
    (
        SegmentationTask(Y, classes=3, axis=1),
        RNG.normal(size=(9, 3, 4, 5)),
        RNG.integers(0, 3, (9, 4, 5)),
    ),
    (
        ClassificationTask(Y, classes=4, one_hot=1),
        RNG.normal(size=(9, 4)),
        np.eye(4)[RNG.integers(0, 4, 9)],
    ),
    (
        SegmentationTask(Y, classes=3, axis=1, one_hot=1),
        RNG.normal(size=(9, 3, 4, 5)),
        np.moveaxis(np.eye(3)[RNG.integers(0, 3, (9, 4, 5))], -1, 1),
    ),
    (
        SegmentationTask(Y, classes=2, is_single=True),
        RNG.normal(size=(9, 1, 4, 5)),
        RNG.integers(0, 2, (9, 4, 5)),
    ),
    (
        SegmentationTask(Y, classes=2, is_single=True),
        RNG.normal(size=(9, 4, 5)),
        RNG.integers(0, 2, (9, 4, 5)) / 1.0,
    ),
    (
        PositionTask(Y, classes=2, is_single=True),
        RNG.normal(size=(9, 5)),
        RNG.integers(0, 2, (9, 5)),
    ),
    (MultilabelTask(Y), RNG.normal(size=(9, 3)), RNG.integers(0, 2, (9, 3))),
    (RegressionTask(Y, spread=2.0), RNG.normal(size=(9, 2)), RNG.normal(size=(9, 2))),
)
NAMES = [
    "classes",
    "two classes",
    "two classes without an axis",
    "positions",
    "maps",
    "one-hot rows",
    "one-hot maps",
    "masks",
    "masks without channels",
    "marks",
    "multi-label",
    "numbers",
]


def judged(output: np.ndarray, target: np.ndarray, size: int = 4) -> list[EvaluatedBatch]:
    parts = [slice(i, i + size) for i in range(0, len(output), size)]
    return [
        EvaluatedBatch([output[p]], Batch({"x": output[p]}, {TARGET: target[p]}), None)
        for p in parts
    ]


def value(task: SupervisedTask, output: np.ndarray, target: np.ndarray) -> float:
    found: Any = task.compute_metric(task.sample_statistics(judged(output, target), ()), "test")
    return found.value


def test_average_precision_is_that_of_scikit_learn():
    scores, there = RNG.normal(size=(200, 5)), RNG.random((200, 5)) < 0.3
    wanted = metrics.average_precision_score(there, scores, average="macro")
    assert value(MultilabelTask(Y), scores, there) == pytest.approx(wanted, abs=1e-12)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=30).filter(
        lambda v: any(b for _, b in v)
    )
)
def test_average_precision_counts_equal_scores_as_one(pairs: list[tuple[int, bool]]):
    scores, there = (np.array(column)[:, None] for column in zip(*pairs, strict=True))
    found = average_precision(scores.astype(float), there)[0]
    assert found == pytest.approx(
        metrics.average_precision_score(there[:, 0], scores[:, 0]), abs=1e-12
    )


def test_a_label_that_no_sample_has_is_left_out():
    scores, there = RNG.normal(size=(20, 2)), np.stack([np.arange(20) < 5, np.zeros(20)], axis=1)
    wanted = metrics.average_precision_score(there[:, 0], scores[:, 0])
    assert value(MultilabelTask(Y), scores, there) == pytest.approx(wanted)


@pytest.mark.parametrize("columns", [1, 3])
def test_r2_is_that_of_scikit_learn(columns: int):
    target = RNG.normal(5, [1, 10, 0.1][:columns], (50, columns))
    output = target + RNG.normal(size=(50, columns)) * [1, 5, 0.2][:columns]
    assert value(RegressionTask(Y), output, target) == pytest.approx(
        metrics.r2_score(target, output)
    )


def test_r2_of_a_map_takes_all_values_together():
    target = RNG.normal(3, 2, (20, 10, 10))
    output = target + RNG.normal(size=target.shape)
    assert value(RegressionTask(Y), output, target) == pytest.approx(
        metrics.r2_score(target.ravel(), output.ravel())
    )


def test_the_error_is_told_in_the_unit_of_the_targets():
    target, output = np.zeros((4, 1)), np.array([[1.0], [-1.0], [3.0], [-3.0]])
    for kind, error in (("squared_error", 5**0.5), ("absolute_error", 2.0)):
        task = RegressionTask(Y, kind=kind)  # type: ignore[arg-type]
        (figure,) = task.compute_metric(
            task.sample_statistics(judged(output, target), ()), "test"
        ).extra_metrics
        assert figure.value == pytest.approx(error)
        assert not figure.higher_is_better


def test_an_output_that_is_no_number_is_as_bad_as_can_be():
    assert value(RegressionTask(Y), np.array([[np.nan], [0.0]]), np.array([[1.0], [2.0]])) < -1e100
    assert value(MultilabelTask(Y), np.array([[np.nan], [0.0]]), np.array([[1], [0]])) == 0.5


def test_miou_is_the_mean_of_jaccard_scores():
    target, output = RNG.integers(0, 4, (7, 6, 5)), RNG.normal(size=(7, 4, 6, 5))
    output += 2 * np.moveaxis(np.eye(4)[target], -1, 1)
    wanted = metrics.jaccard_score(target.ravel(), output.argmax(1).ravel(), average="macro")
    assert value(SegmentationTask(Y, classes=4, axis=1), output, target) == pytest.approx(wanted)


@pytest.mark.parametrize("shape", [(7, 1, 6, 5), (7, 6, 5), (7, 6, 5, 1)])
def test_one_channel_tells_two_classes_by_a_threshold(shape: tuple[int, ...]):
    target = RNG.integers(0, 2, (7, 6, 5))
    logits = RNG.normal(size=target.shape) + 2 * target - 1
    by_two = np.stack([np.zeros_like(logits), logits], axis=1)
    wanted = metrics.jaccard_score(target.ravel(), (logits > 0).ravel(), average="macro")
    labels, output = {TARGET: torch.tensor(target)}, logits.reshape(shape)
    sigmoid = 1 / (1 + np.exp(-output))
    two = SegmentationTask(Y, classes=2, axis=1).compute_loss([torch.tensor(by_two)], labels, None)
    for is_probability, y in ((False, output), (True, sigmoid)):
        task = SegmentationTask(Y, classes=2, is_single=True, is_probability=is_probability)
        assert value(task, y, target) == pytest.approx(wanted)
        assert float(task.compute_loss([torch.tensor(y)], labels, None)) == pytest.approx(
            float(two), rel=1e-5
        )


def test_a_pixel_that_is_no_number_is_no_class():
    task = SegmentationTask(Y, classes=2, is_single=True)
    assert value(task, np.array([[[np.nan, -1.0]]]), np.array([[[0, 0]]])) == 0.5


def test_a_pixel_without_a_label_does_not_count():
    target = np.array([[[0, 1], [255, 255]]])
    output = np.moveaxis(np.eye(2)[[[[0, 1], [0, 1]]]], -1, 1)
    task = SegmentationTask(Y, classes=2, axis=1, ignored=255)
    assert value(task, output, target) == 1.0


def test_right_positions_are_counted_over_all_samples():
    output = np.eye(3)[[[0, 1, 2], [0, 0, 0]]]
    target = np.array([[0, 1, 1], [0, -100, -100]])
    assert value(PositionTask(Y, classes=3, axis=2), output, target) == 0.75


def test_labels_shorter_than_the_output_are_of_a_model_with_a_fixed_length():
    task = PositionTask(Y, classes=3, axis=2)
    output, target = np.eye(3)[[[0, 1, 2, 0]]], np.array([[0, 1]])
    assert value(task, output, target) == 1.0
    loss = task.compute_loss([torch.tensor(output)], {TARGET: torch.tensor(target)}, None)
    short = task.compute_loss([torch.tensor(output[:, :2])], {TARGET: torch.tensor(target)}, None)
    assert float(loss) == pytest.approx(float(short))


@pytest.mark.parametrize(("task", "output", "target"), TASKS, ids=NAMES)
def test_learning_lowers_the_loss_and_betters_the_metric(
    task: SupervisedTask, output: np.ndarray, target: np.ndarray
):
    y = torch.tensor(output, dtype=torch.float32, requires_grad=True)
    optimizer = torch.optim.Adam([y], 0.1)
    for _ in range(200):
        optimizer.zero_grad()
        task.compute_loss([y], {TARGET: torch.tensor(target)}, None).backward()
        optimizer.step()
    assert value(task, y.detach().numpy(), target) > 0.99 >= value(task, output, target)


@pytest.mark.parametrize(("task", "output", "target"), TASKS, ids=NAMES)
def test_who_learns_from_the_original_alone_has_no_loss_where_it_is_met(
    task: SupervisedTask, output, target
):
    taught = torch.tensor(output, dtype=torch.float32)
    other = taught + torch.tensor(RNG.normal(size=output.shape), dtype=torch.float32)
    labels = {TARGET: torch.tensor(target)}
    assert float(
        task.with_distillation(1.0).compute_loss([taught], labels, [taught])
    ) == pytest.approx(0, abs=1e-6)
    assert float(task.with_distillation(1.0).compute_loss([other], labels, [taught])) > 1e-4


@pytest.mark.parametrize(("task", "output", "target"), TASKS, ids=NAMES)
def test_the_interval_of_a_drop_holds_the_drop_and_is_the_same_each_time(
    task: SupervisedTask, output, target
):
    worse = output + RNG.normal(size=output.shape)
    before, after = (task.sample_statistics(judged(y, target), ()) for y in (output, worse))
    low, high = task.compute_drop_interval(before, after)
    assert low <= task.metric_value(before) - task.metric_value(after) <= high
    assert (low, high) == task.compute_drop_interval(before, after)


@pytest.mark.parametrize(
    ("task", "output", "target"),
    [
        (MultilabelTask(Y), RNG.normal(size=(9, 3)), np.zeros((9, 3))),
        (RegressionTask(Y), RNG.normal(size=(9, 2)), np.ones((9, 2))),
        (PositionTask(Y, classes=3, axis=2), RNG.normal(size=(9, 5, 3)), np.full((9, 5), -100)),
        (
            SegmentationTask(Y, classes=3, axis=1),
            RNG.normal(size=(9, 3, 2, 2)),
            np.full((9, 2, 2), -100),
        ),
    ],
)
def test_where_nothing_can_be_measured_the_metric_is_zero_and_a_drop_has_no_interval(
    task: SupervisedTask, output, target
):
    evidence = task.sample_statistics(judged(output, target), ())
    assert value(task, output, target) == 0.0
    assert task.compute_drop_interval(evidence, evidence) is None


def test_draws_without_any_label_do_not_narrow_an_interval():
    there = np.zeros((60, 1))
    there[0] = 1
    scores, worse = np.linspace(1, 0, 60)[:, None], np.linspace(0, 1, 60)[:, None]
    before, after = (
        MultilabelTask(Y).sample_statistics(judged(y, there), ()) for y in (scores, worse)
    )
    low, _ = MultilabelTask(Y).compute_drop_interval(before, after) or (0.0, 0.0)
    assert low > 0.5  # a third of the draws has no label; there the difference would be 0


@pytest.mark.parametrize(
    ("task", "target", "guess"),
    [
        (PositionTask(Y, classes=3, axis=2), np.array([[0, 1], [1, 1], [-100, 2]]), 0.6),
        (SegmentationTask(Y, classes=3, axis=1), np.array([[[0, 1]], [[1, 1]]]), 0.375),
        (
            SegmentationTask(Y, classes=3, axis=1, one_hot=1),
            np.moveaxis(np.eye(3)[[[[0, 1]], [[1, 1]]]], -1, 1),
            0.375,
        ),
        (ClassificationTask(Y, classes=3, one_hot=1), np.eye(3)[[0, 2, 2, 1]], 0.5),
        (MultilabelTask(Y), np.array([[1, 0], [0, 0], [1, 0], [1, 1]]), 0.5),
        (RegressionTask(Y), np.array([1.5, 2.5]), 0.0),
    ],
)
def test_a_guess_does_not_look_at_the_input(task: SupervisedTask, target: np.ndarray, guess: float):
    assert task.chance_level(
        split_of(np.zeros((len(target), 1)), target, prepare=unread)
    ) == pytest.approx(guess)
