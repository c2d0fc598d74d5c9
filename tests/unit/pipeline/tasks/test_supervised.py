"""Metrics of supervised tasks against scikit-learn, their losses and the intervals of a drop."""

from __future__ import annotations

from dataclasses import replace
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
from tests.support.samples import UnreadableSamples, split_of

Y = TaskOutput(0, "y", "values")
RNG = np.random.default_rng(0)
TOKEN_TASK = PositionTask(Y, num_classes=3, axis=2)
MASK_TASK = SegmentationTask(Y, num_classes=2, is_single=True)
BINARY_TASK = ClassificationTask(Y, num_classes=2, is_single=True)


def case(name: str, task: SupervisedTask, shape: tuple[int, ...], target: np.ndarray) -> Any:
    return pytest.param(task, RNG.normal(size=shape), target, id=name)


every_task = pytest.mark.parametrize(
    ("task", "output", "target"),
    [
        case("classes", ClassificationTask(Y, num_classes=4), (9, 4), RNG.integers(0, 4, 9)),
        case("two classes", BINARY_TASK, (9, 1), RNG.integers(0, 2, 9)),
        case("two classes without an axis", BINARY_TASK, (9,), RNG.integers(0, 2, 9)),
        case("positions", TOKEN_TASK, (9, 5, 3), RNG.integers(0, 3, (9, 5))),
        case(
            "maps",
            SegmentationTask(Y, num_classes=3, axis=1),
            (9, 3, 4, 5),
            RNG.integers(0, 3, (9, 4, 5)),
        ),
        case("masks", MASK_TASK, (9, 1, 4, 5), RNG.integers(0, 2, (9, 4, 5))),
        case("masks without channels", MASK_TASK, (9, 4, 5), RNG.integers(0, 2, (9, 4, 5)) / 1.0),
        case(
            "binary positions",
            PositionTask(Y, num_classes=2, is_single=True),
            (9, 5),
            RNG.integers(0, 2, (9, 5)),
        ),
        case("multilabel", MultilabelTask(Y), (9, 3), RNG.integers(0, 2, (9, 3))),
        case("numbers", RegressionTask(Y, target_std=2.0), (9, 2), RNG.normal(size=(9, 2))),
    ],
)


def in_batches(output: np.ndarray, target: np.ndarray, size: int = 4) -> list[EvaluatedBatch]:
    parts = [slice(i, i + size) for i in range(0, len(output), size)]
    return [
        EvaluatedBatch([output[p]], Batch({"x": output[p]}, {TARGET: target[p]}), None)
        for p in parts
    ]


def statistics_of(task: SupervisedTask, output: np.ndarray, target: np.ndarray) -> np.ndarray:
    return task.sample_statistics(in_batches(output, target), ())


def value(task: SupervisedTask, output: np.ndarray, target: np.ndarray) -> float:
    return task.compute_metric(statistics_of(task, output, target), "test").value


def loss_of(task: SupervisedTask, output: np.ndarray, target: np.ndarray) -> float:
    return float(task.compute_loss([torch.tensor(output)], {TARGET: torch.tensor(target)}, None))


def test_mean_average_precision_equals_scikit_learn():
    scores, is_present = RNG.normal(size=(200, 5)), RNG.random((200, 5)) < 0.3
    expected = metrics.average_precision_score(is_present, scores, average="macro")
    assert value(MultilabelTask(Y), scores, is_present) == pytest.approx(expected, abs=1e-12)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=30).filter(
        lambda pairs: any(is_present for _, is_present in pairs)
    )
)
def test_average_precision_equal_scores_are_one_threshold(pairs: list[tuple[int, bool]]):
    scores, is_present = (np.array(column)[:, None] for column in zip(*pairs, strict=True))
    expected = metrics.average_precision_score(is_present[:, 0], scores[:, 0])
    assert average_precision(scores.astype(float), is_present)[0] == pytest.approx(
        expected, abs=1e-12
    )


def test_mean_average_precision_skips_labels_of_no_sample():
    scores = RNG.normal(size=(20, 2))
    is_present = np.stack([np.arange(20) < 5, np.zeros(20)], axis=1)
    expected = metrics.average_precision_score(is_present[:, 0], scores[:, 0])
    assert value(MultilabelTask(Y), scores, is_present) == pytest.approx(expected)


@pytest.mark.parametrize("columns", [1, 3])
def test_r2_equals_scikit_learn(columns: int):
    target = RNG.normal(5, [1, 10, 0.1][:columns], (50, columns))
    output = target + RNG.normal(size=(50, columns)) * [1, 5, 0.2][:columns]
    expected = metrics.r2_score(target, output)
    assert value(RegressionTask(Y), output, target) == pytest.approx(expected)


def test_r2_of_a_map_pools_all_values():
    target = RNG.normal(3, 2, (20, 10, 10))
    output = target + RNG.normal(size=target.shape)
    expected = metrics.r2_score(target.ravel(), output.ravel())
    assert value(RegressionTask(Y), output, target) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("error", "expected"), [("squared_error", 5**0.5), ("absolute_error", 2.0)]
)
def test_regression_extra_metric_is_the_error_of_the_loss(error: Any, expected: float):
    target, output = np.zeros((4, 1)), np.array([[1.0], [-1.0], [3.0], [-3.0]])
    task = RegressionTask(Y, error=error)
    (extra,) = task.compute_metric(statistics_of(task, output, target), "test").extra_metrics
    assert extra.value == pytest.approx(expected)
    assert not extra.higher_is_better


def test_metrics_of_nan_are_the_worst():
    assert value(RegressionTask(Y), np.array([[np.nan], [0.0]]), np.array([[1.0], [2.0]])) < -1e100
    assert value(MultilabelTask(Y), np.array([[np.nan], [0.0]]), np.array([[1], [0]])) == 0.5
    assert value(MASK_TASK, np.array([[[np.nan, -1.0]]]), np.array([[[0, 0]]])) == 0.5


def test_miou_equals_scikit_learn():
    target, output = RNG.integers(0, 4, (7, 6, 5)), RNG.normal(size=(7, 4, 6, 5))
    output += 2 * np.moveaxis(np.eye(4)[target], -1, 1)
    expected = metrics.jaccard_score(target.ravel(), output.argmax(1).ravel(), average="macro")
    task = SegmentationTask(Y, num_classes=4, axis=1)
    assert value(task, output, target) == pytest.approx(expected)


@pytest.mark.parametrize("shape", [(7, 1, 6, 5), (7, 6, 5), (7, 6, 5, 1)])
@pytest.mark.parametrize("is_probability", [False, True])
def test_segmentation_single_channel_equals_two_channels(
    shape: tuple[int, ...], is_probability: bool
):
    target = RNG.integers(0, 2, (7, 6, 5))
    logits = RNG.normal(size=target.shape) + 2 * target - 1
    output = 1 / (1 + np.exp(-logits)) if is_probability else logits
    task = SegmentationTask(Y, num_classes=2, is_single=True, is_probability=is_probability)
    two_channels = np.stack([np.zeros_like(logits), logits], axis=1)
    expected = loss_of(SegmentationTask(Y, num_classes=2, axis=1), two_channels, target)
    assert loss_of(task, output.reshape(shape), target) == pytest.approx(expected, rel=1e-5)
    expected = metrics.jaccard_score(target.ravel(), (logits > 0).ravel(), average="macro")
    assert value(task, output.reshape(shape), target) == pytest.approx(expected)


def test_segmentation_ignores_pixels_without_a_class():
    target = np.array([[[0, 1], [255, 255]]])
    output = np.moveaxis(np.eye(2)[[[[0, 1], [0, 1]]]], -1, 1)
    task = SegmentationTask(Y, num_classes=2, axis=1, ignore_index=255)
    assert value(task, output, target) == 1.0


def test_position_accuracy_counts_positions_of_all_samples():
    output = np.eye(3)[[[0, 1, 2], [0, 0, 0]]]
    target = np.array([[0, 1, 1], [0, -100, -100]])
    assert value(TOKEN_TASK, output, target) == 0.75


def test_position_task_output_longer_than_labels_ignores_the_rest():
    output, target = np.eye(3)[[[0, 1, 2, 0]]], np.array([[0, 1]])
    assert value(TOKEN_TASK, output, target) == 1.0
    short = loss_of(TOKEN_TASK, output[:, :2], target)
    assert loss_of(TOKEN_TASK, output, target) == pytest.approx(short)


@every_task
def test_compute_loss_descent_improves_the_metric(
    task: SupervisedTask, output: np.ndarray, target: np.ndarray
):
    y = torch.tensor(output, dtype=torch.float32, requires_grad=True)
    optimizer = torch.optim.Adam([y], 0.1)
    for _ in range(200):
        optimizer.zero_grad()
        task.compute_loss([y], {TARGET: torch.tensor(target)}, None).backward()
        optimizer.step()
    assert value(task, y.detach().numpy(), target) > 0.99 >= value(task, output, target)


@every_task
def test_distillation_loss_is_zero_for_equal_outputs(task: SupervisedTask, output, target):
    teacher = torch.tensor(output, dtype=torch.float32)
    other = teacher + torch.tensor(RNG.normal(size=output.shape), dtype=torch.float32)
    distilled, labels = replace(task, distillation_weight=1.0), {TARGET: torch.tensor(target)}
    assert float(distilled.compute_loss([teacher], labels, [teacher])) == pytest.approx(0, abs=1e-6)
    assert float(distilled.compute_loss([other], labels, [teacher])) > 1e-4


@every_task
def test_compute_drop_interval_contains_the_drop_and_repeats(task: SupervisedTask, output, target):
    worse = output + RNG.normal(size=output.shape)
    before, after = statistics_of(task, output, target), statistics_of(task, worse, target)
    interval = task.compute_drop_interval(before, after)
    assert interval is not None
    low, high = interval
    assert low <= task.metric_value(before) - task.metric_value(after) <= high
    assert interval == task.compute_drop_interval(before, after)


@pytest.mark.parametrize(
    ("task", "output", "target"),
    [
        (MultilabelTask(Y), RNG.normal(size=(9, 3)), np.zeros((9, 3))),
        (RegressionTask(Y), RNG.normal(size=(9, 2)), np.ones((9, 2))),
        (TOKEN_TASK, RNG.normal(size=(9, 5, 3)), np.full((9, 5), -100)),
        (
            SegmentationTask(Y, num_classes=3, axis=1),
            RNG.normal(size=(9, 3, 2, 2)),
            np.full((9, 2, 2), -100),
        ),
    ],
)
def test_undefined_metric_is_zero_without_an_interval(task: SupervisedTask, output, target):
    statistics = statistics_of(task, output, target)
    assert value(task, output, target) == 0.0
    assert task.compute_drop_interval(statistics, statistics) is None


def test_compute_drop_interval_undefined_replicates_do_not_narrow_it():
    is_present = np.zeros((60, 1))
    is_present[0] = 1
    task, scores = MultilabelTask(Y), np.linspace(1, 0, 60)[:, None]
    before, after = (statistics_of(task, y, is_present) for y in (scores, scores[::-1]))
    low, _ = task.compute_drop_interval(before, after) or (0.0, 0.0)
    assert low > 0.5  # a third of the replicates has no label; there the difference would be 0


@pytest.mark.parametrize(
    ("task", "target", "expected"),
    [
        (TOKEN_TASK, np.array([[0, 1], [1, 1], [-100, 2]]), 0.6),
        (SegmentationTask(Y, num_classes=3, axis=1), np.array([[[0, 1]], [[1, 1]]]), 0.375),
        (MultilabelTask(Y), np.array([[1, 0], [0, 0], [1, 0], [1, 1]]), 0.5),
        (RegressionTask(Y), np.array([1.5, 2.5]), 0.0),
    ],
)
def test_chance_level_reads_labels_only(task: SupervisedTask, target: np.ndarray, expected: float):
    split = split_of(np.zeros((len(target), 1)), target, samples=UnreadableSamples)
    assert task.chance_level(split) == pytest.approx(expected)
