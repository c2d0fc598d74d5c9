"""Which task is inferred from labels and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ltp_pipeline.data.dataset import TARGET, DatasetSplits, Split
from ltp_pipeline.data.sequences import RaggedSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.results.schema_parts import TaskSummary
from ltp_pipeline.settings.schema import TaskSettings
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.infer import infer_task
from ltp_pipeline.tasks.multilabel import MultilabelTask
from ltp_pipeline.tasks.positions import PositionTask
from ltp_pipeline.tasks.regression import RegressionTask
from ltp_pipeline.tasks.segmentation import SegmentationTask
from ltp_pipeline.tasks.shapes import LabelSpec, OutputSpec, find_class_axis
from tests.support.models import one_node_each
from tests.support.samples import UnreadableSamples, split_of

RNG = np.random.default_rng(0)
CLASSES = np.arange(6) % 3
BINARY = np.arange(6) % 2
MULTI_HOT = np.array([[1, 0, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
MAPS = RNG.integers(0, 3, (6, 4, 5))
TOKENS = RNG.integers(0, 3, (6, 7))
NUMBERS = RNG.normal(size=(6, 2))
MASKS = RNG.integers(0, 2, (6, 4, 5))
ONE_HOT = np.eye(3, dtype=np.int64)[CLASSES]
ONE_HOT_MAPS = np.moveaxis(np.eye(3)[MAPS], -1, 1)


def data_with(target: np.ndarray | None) -> DatasetSplits:
    inputs = np.zeros((6 if target is None else len(target), 4), np.float32)
    split = split_of(inputs, target, samples=UnreadableSamples)
    classes = None if split.labels is None else int(split.labels.max()) + 1
    return DatasetSplits(split, split, split, classes, "")


def infer(
    target: np.ndarray | None, *outputs: tuple[str, tuple[int, ...]], **settings: Any
) -> tuple[Any, DatasetSplits]:
    graph = one_node_each(*(operator for operator, _ in outputs))
    shapes = [(2, *shape) for _, shape in outputs]
    return infer_task(data_with(target), graph, shapes, 2, TaskSettings(**settings))


def task_of(
    target: np.ndarray | None, *outputs: tuple[str, tuple[int, ...]], **settings: Any
) -> Any:
    return infer(target, *outputs, **settings)[0]


def error_of(
    target: np.ndarray | None, *outputs: tuple[str, tuple[int, ...]], **settings: Any
) -> InputError:
    with pytest.raises(InputError) as caught:
        infer(target, *outputs, **settings)
    return caught.value


@pytest.mark.parametrize(
    ("target", "operator", "shape", "expected"),
    [
        (CLASSES, "Gemm", (3,), ClassificationTask),
        (CLASSES, "Gemm", (3, 1, 1), ClassificationTask),
        (BINARY, "Sigmoid", (1,), ClassificationTask),
        (BINARY, "Sigmoid", (), ClassificationTask),
        (TOKENS, "Gemm", (7, 3), PositionTask),
        (TOKENS, "Gemm", (3, 7), PositionTask),
        (ONE_HOT, "Gemm", (3,), ClassificationTask),
        (ONE_HOT.astype(np.float32), "Softmax", (3, 1, 1), ClassificationTask),
        (ONE_HOT[:, :, None], "Gemm", (3,), ClassificationTask),
        (ONE_HOT, "Sigmoid", (3,), MultilabelTask),
        (MULTI_HOT, "Sigmoid", (3, 1, 1), MultilabelTask),
        (np.eye(3)[TOKENS], "Gemm", (7, 3), PositionTask),
        (ONE_HOT_MAPS, "Softmax", (3, 4, 5), SegmentationTask),
        (np.eye(3)[MAPS], "Softmax", (4, 5, 3), SegmentationTask),
        (TOKENS.astype(np.float32), "Gemm", (7, 3), PositionTask),
        (MULTI_HOT, "Sigmoid", (3,), MultilabelTask),
        (MULTI_HOT.astype(np.float32), "Gemm", (3,), MultilabelTask),
        (MAPS, "Conv", (3, 4, 5), SegmentationTask),
        (MAPS[:, None], "Conv", (3, 4, 5), SegmentationTask),
        (MASKS, "Sigmoid", (1, 4, 5), SegmentationTask),
        (MASKS[:, None], "Sigmoid", (4, 5), SegmentationTask),
        (MASKS.astype(np.float32), "HardSigmoid", (4, 5, 1), SegmentationTask),
        (NUMBERS, "Gemm", (2,), RegressionTask),
        (RNG.random((6, 4, 5)), "Sigmoid", (1, 4, 5), RegressionTask),
        (RNG.random((6, 3)), "Sigmoid", (3,), RegressionTask),
        (10 * MASKS, "Gemm", (1, 4, 5), RegressionTask),
        (NUMBERS[:, 0], "Gemm", (1,), RegressionTask),
        (np.arange(6) * 10, "Gemm", (1,), RegressionTask),
        (None, "Gemm", (3,), DistillationTask),
    ],
)
def test_infer_task_of_labels_and_output_returns_its_class(
    target: np.ndarray, operator: str, shape: tuple[int, ...], expected: type
):
    assert type(task_of(target, (operator, shape))) is expected


def test_infer_task_kind_distillation_ignores_labels():
    assert type(task_of(CLASSES, ("Gemm", (3,)), kind="distillation")) is DistillationTask


def test_infer_task_two_classes_and_unbounded_output_requires_kind():
    output = ("Gemm", (1,))
    assert '"classification" or "regression"' in error_of(BINARY, output).hint
    assert task_of(BINARY, output, kind="classification").is_single
    assert type(task_of(BINARY, output, kind="regression")) is RegressionTask


def test_infer_task_only_several_scores_have_an_argmax():
    assert not task_of(BINARY, ("Sigmoid", (1,))).output.has_argmax
    assert task_of(CLASSES, ("Gemm", (3,))).output.has_argmax


def test_infer_task_binary_mask_and_unbounded_output_requires_kind():
    output = ("Conv", (1, 4, 5))
    assert '"segmentation" or "regression"' in error_of(MASKS, output).hint
    task = task_of(MASKS, output, kind="segmentation")
    assert (task.is_single, task.is_probability, task.num_classes) == (True, False, 2)
    assert type(task_of(MASKS, output, kind="regression")) is RegressionTask


def test_infer_task_positions_with_one_score_have_two_classes():
    assert task_of(TOKENS % 2, ("Sigmoid", (7, 1)), kind="classification").is_single
    message = error_of(TOKENS, ("Sigmoid", (7,)), kind="classification").message
    assert "0 to 2" in message
    assert "2 classes" in message


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_infer_task_kind_decides_about_one_hot_rows(kind: Any):
    assert task_of(ONE_HOT, ("Gemm", (3,)), kind=kind).describe_output().kind == kind


@pytest.mark.parametrize(
    ("target", "output", "kind", "numbers"),
    [
        (ONE_HOT, ("Gemm", (3,)), None, CLASSES),
        (ONE_HOT[:, :, None], ("Gemm", (3,)), None, CLASSES[:, None]),
        (ONE_HOT, ("Sigmoid", (3,)), "classification", CLASSES),
        (ONE_HOT_MAPS, ("Conv", (3, 4, 5)), "segmentation", MAPS),
        (np.eye(3)[TOKENS], ("Gemm", (7, 3)), None, TOKENS),
    ],
)
def test_infer_task_one_hot_labels_become_class_numbers(target, output, kind, numbers):
    _, data = infer(target, output, kind=kind)
    batch = data.train.targets[TARGET].take(np.arange(6))
    np.testing.assert_array_equal(batch, numbers)
    assert data.train.targets[TARGET].shape == numbers.shape[1:]
    assert len(data.notes) == 1
    assert data.test is data.val


def test_infer_task_class_numbers_stay_as_they_are():
    target = data_with(CLASSES)
    _, data = infer_task(target, one_node_each("Gemm"), [(2, 3)], 2, TaskSettings())
    assert data is target


def test_infer_task_axis_of_one_hot_labels_is_the_class_axis():
    cube = np.eye(4)[RNG.integers(0, 4, (6, 4, 4))]
    task, data = infer(cube, ("Softmax", (4, 4, 4)))
    assert task.axis == 3
    np.testing.assert_array_equal(data.train.inspected_targets, cube.argmax(3))


def test_infer_task_line_in_a_mask_is_not_one_hot():
    line = np.eye(4)[RNG.integers(0, 4, (6, 5))].swapaxes(1, 2)  # one pixel in each column
    assert task_of(line, ("Conv", (1, 4, 5)), kind="segmentation").is_single
    assert '"segmentation" or "regression"' in error_of(line, ("Conv", (1, 4, 5))).hint


def ragged_data() -> DatasetSplits:
    ragged = RaggedSamples(np.array([0, 1, 1, 0, 1, 0]), np.array([0, 2, 5, 6]), pad=-100)
    split = Split("train", {}, {TARGET: ragged}, np.arange(3))
    return DatasetSplits(split, split, split, None, "")


def test_infer_task_tokens_of_sequences_may_have_one_score():
    task, _ = infer_task(ragged_data(), one_node_each("Sigmoid"), [(2, 3)], 2, TaskSettings())
    assert isinstance(task, PositionTask)
    assert task.is_single


def test_find_class_axis_skips_axes_of_open_size():
    labels = LabelSpec.from_data(ragged_data())
    single = OutputSpec(0, "y", (3, 1), "Sigmoid", frozenset({1}))
    assert find_class_axis(labels, single) is None
    assert find_class_axis(labels, OutputSpec(0, "y", (4, 3), "Gemm", frozenset({2}))) == 1


@pytest.mark.parametrize(
    ("row", "number"), [([0, 0, 0], "0 classes"), ([1, 1, 0], "2 classes"), ([2, 0, 0], "2")]
)
def test_infer_task_row_that_is_not_one_hot_raises_input_error(row: list[int], number: str):
    labels = np.tile(ONE_HOT, (4000, 1))
    labels[10501] = row
    # Inference looks at some labels only, and not at this one.
    assert not (np.linspace(0, 23999, 10000).astype(int) == 10501).any()
    error = error_of(labels, ("Gemm", (3,)))
    assert "sample 10501" in error.message
    assert number in error.message
    assert 'kind = "multilabel"' in error.hint


def test_infer_task_one_hot_rows_that_do_not_fit_suggest_class_numbers():
    assert "argmax(axis=1)" in error_of(np.eye(6), ("Softmax", (7,))).hint
    assert type(task_of(np.eye(6), ("Softmax", (6,)), kind="multilabel")) is MultilabelTask


def test_infer_task_labels_that_fit_no_output_name_the_outputs():
    message = error_of(MAPS, ("Gemm", (5,))).message
    assert "'y0'" in message
    assert "4×5" in message


def test_infer_task_first_output_that_fits_wins():
    assert task_of(CLASSES, ("Gemm", (3,)), ("Gemm", (8,))).output.position == 0


def test_infer_task_only_output_that_fits_is_taken():
    assert task_of(CLASSES, ("Conv", (9, 4, 4)), ("Gemm", (8,))).output.position == 1


def test_infer_task_several_further_outputs_require_a_name():
    outputs = (("Conv", (9, 4, 4)), ("Gemm", (8,)), ("Gemm", (3,)))
    error = error_of(CLASSES, *outputs)
    assert "'y1'" in error.message
    assert "'y2'" in error.message
    assert 'output = "y1" in [task]' in error.hint
    assert task_of(CLASSES, *outputs, output="y2").num_classes == 3


def test_infer_task_unknown_output_names_those_of_the_model():
    assert "'y0'" in error_of(CLASSES, ("Gemm", (3,)), output="logits").hint


@pytest.mark.parametrize("shape", [(3,), (3, 1, 1)])
@pytest.mark.parametrize("labels", [MULTI_HOT, MULTI_HOT.astype(np.float32)])
def test_infer_task_multilabel_with_another_number_raises_input_error(
    labels: np.ndarray, shape: Any
):
    labels = labels.copy()
    labels[3, 2] = 2
    message = error_of(labels, ("Sigmoid", shape)).message
    assert "sample 3" in message
    assert "2" in message


@pytest.mark.parametrize(("labels", "wrong"), [(CLASSES, "label 2"), (CLASSES - 1, "label -1")])
def test_infer_task_single_sigmoid_has_two_classes(labels: np.ndarray, wrong: str):
    assert wrong in error_of(labels, ("Sigmoid", (1,))).message


@pytest.mark.parametrize(
    ("labels", "operator", "shape", "ignored"),
    [
        (MAPS.astype(np.uint8), "Conv", (3, 4, 5), 255),
        (MAPS.astype(np.float32), "Conv", (3, 4, 5), 255),
        (MASKS, "Sigmoid", (1, 4, 5), 255),
        (TOKENS, "Gemm", (7, 3), 99),
        (TOKENS, "Gemm", (7, 3), -1),
    ],
)
def test_infer_task_label_out_of_range_suggests_ignore_index(labels, operator, shape, ignored):
    labels = labels.copy()
    labels[2, 3] = ignored
    error = error_of(labels, (operator, shape))
    assert str(ignored) in error.message
    assert f"ignore_index = {ignored} in [task]" in error.hint
    assert task_of(labels, (operator, shape), ignore_index=ignored).ignore_index == ignored


def test_infer_task_masks_of_0_and_255_suggest_two_meanings():
    hint = error_of(MASKS * 255, ("Sigmoid", (4, 5))).hint
    assert "ignore_index = 255 in [task]" in hint
    assert "1 instead of 255" in hint


def test_infer_task_all_labels_out_of_range_do_not_suggest_ignore_index():
    assert "ignore_index" not in error_of(MAPS + 100, ("Conv", (3, 4, 5))).hint


def test_infer_task_labels_from_1_suggest_subtraction():
    error = error_of(MAPS + 1, ("Conv", (3, 4, 5)))
    assert "1 to 3" in error.message
    assert "subtract 1" in error.hint


def test_infer_task_fraction_among_class_numbers_raises_input_error():
    labels = np.tile(TOKENS, (4000, 1)).astype(np.float32)
    labels[10501, 2] = 0.5
    assert "0.5" in error_of(labels, ("Gemm", (7, 3))).message


@pytest.mark.parametrize(
    ("target", "shape", "parts"),
    [
        (CLASSES + 1, (3,), ("1 to 3", "3 classes")),
        (CLASSES, (2,), ("sample 2 has the label 2", "0 to 2", "2 classes")),
        (TOKENS - 1, (7, 3), ("label -1",)),
        (np.array([0, -1, 2, 0, 1, 2]), (3,), ("label -1",)),
    ],
)
def test_infer_task_class_out_of_range_raises_input_error(
    target: np.ndarray, shape: tuple[int, ...], parts: tuple[str, ...]
):
    message = error_of(target, ("Gemm", shape)).message
    assert [part for part in parts if part not in message] == []


def test_infer_task_positions_may_be_ignored():
    labels = TOKENS.copy()
    labels[:, 3:] = -100
    assert task_of(labels, ("Gemm", (7, 3))).ignore_index == -100


def test_infer_task_multilabel_of_other_numbers_raises_input_error():
    labels = np.array([[1, 0], [2, 0], [0, 1], [1, 1], [0, 0], [1, 0]])
    assert "sample 1" in error_of(labels, ("Sigmoid", (2,)), kind="multilabel").message


@pytest.mark.parametrize(
    ("target", "operator", "shape", "expected"),
    [
        (CLASSES, "Gemm", (3,), TaskSummary("classification", "y1", class_axis=1)),
        (ONE_HOT_MAPS, "Gemm", (3, 4, 5), TaskSummary("segmentation", "y1", class_axis=1)),
        (BINARY, "Sigmoid", (1,), TaskSummary("classification", "y1", threshold=0.5)),
        (TOKENS, "Gemm", (7, 3), TaskSummary("classification", "y1", class_axis=2)),
        (TOKENS, "Gemm", (3, 7), TaskSummary("classification", "y1", class_axis=1)),
        (MASKS, "Sigmoid", (4, 5), TaskSummary("segmentation", "y1", threshold=0.5)),
        (MULTI_HOT, "Gemm", (3,), TaskSummary("multilabel", "y1", threshold=0.0)),
        (NUMBERS, "Gemm", (2,), TaskSummary("regression", "y1")),
        (None, "Softmax", (3,), TaskSummary("distillation", "y1", class_axis=1)),
        (None, "Gemm", (3,), TaskSummary("distillation", "y1")),
    ],
)
def test_describe_output_names_kind_and_output(
    target: Any, operator: str, shape: tuple[int, ...], expected: TaskSummary
):
    task = task_of(target, ("Conv", (9, 9, 9, 9)), (operator, shape), output="y1")
    assert task.describe_output() == expected


def test_describe_output_of_several_distilled_outputs_names_none():
    task = task_of(None, ("Gemm", (3,)), ("Gemm", (3,)))
    assert task.describe_output() == TaskSummary("distillation")


def test_infer_task_constant_targets_raise_input_error():
    assert "target in [task]" in error_of(np.full(6, 2.5), ("Gemm", (1,))).hint
