"""Which task a model and its data ask for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ltp_pipeline.data.dataset import TARGET, DatasetSplits, Split
from ltp_pipeline.data.sequences import RaggedSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.results.schema_parts import TaskSummary
from ltp_pipeline.settings.schema import TaskSettings
from ltp_pipeline.tasks.fitting import LabelSpec, OutputSpec, class_axis
from ltp_pipeline.tasks.infer import find_task
from tests.support.models import one_node_each
from tests.support.samples import split_of, unread

RNG = np.random.default_rng(0)
CLASSES = np.arange(6) % 3
BINARY = np.arange(6) % 2
MULTI_HOT = np.array([[1, 0, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
MAPS = RNG.integers(0, 3, (6, 4, 5))
TOKENS = RNG.integers(0, 3, (6, 7))
NUMBERS = RNG.normal(size=(6, 2))
MASKS = RNG.integers(0, 2, (6, 4, 5))
HOT = np.eye(3, dtype=np.int64)[CLASSES]
HOT_MAPS = np.moveaxis(np.eye(3)[MAPS], -1, 1)


def data_with(target: np.ndarray | None) -> DatasetSplits:
    split = split_of(
        np.zeros((6 if target is None else len(target), 4), np.float32), target, prepare=unread
    )
    classes = None if split.labels is None else int(split.labels.max()) + 1
    return DatasetSplits(split, split, split, classes, "")


def task_of(
    target: np.ndarray | None, *outputs: tuple[str, tuple[int, ...]], **settings: Any
) -> Any:
    graph = one_node_each(*(op for op, _ in outputs))
    shapes = [(2, *shape) for _, shape in outputs]
    return find_task(data_with(target), graph, shapes, 2, TaskSettings(**settings))


@pytest.mark.parametrize(
    ("target", "op", "shape", "kind"),
    [
        (CLASSES, "Gemm", (3,), "ClassificationTask"),
        (CLASSES, "Gemm", (3, 1, 1), "ClassificationTask"),
        (BINARY, "Sigmoid", (1,), "ClassificationTask"),
        (BINARY, "Sigmoid", (), "ClassificationTask"),
        (TOKENS, "Gemm", (7, 3), "PositionTask"),
        (TOKENS, "Gemm", (3, 7), "PositionTask"),
        (HOT, "Gemm", (3,), "ClassificationTask"),
        (HOT.astype(np.float32), "Softmax", (3, 1, 1), "ClassificationTask"),
        (HOT[:, :, None], "Gemm", (3,), "ClassificationTask"),
        (HOT, "Sigmoid", (3,), "MultilabelTask"),
        (MULTI_HOT, "Sigmoid", (3, 1, 1), "MultilabelTask"),
        (np.eye(3)[TOKENS], "Gemm", (7, 3), "PositionTask"),
        (HOT_MAPS, "Softmax", (3, 4, 5), "SegmentationTask"),
        (np.eye(3)[MAPS], "Softmax", (4, 5, 3), "SegmentationTask"),
        (TOKENS.astype(np.float32), "Gemm", (7, 3), "PositionTask"),
        (MULTI_HOT, "Sigmoid", (3,), "MultilabelTask"),
        (MULTI_HOT.astype(np.float32), "Gemm", (3,), "MultilabelTask"),
        (MAPS, "Conv", (3, 4, 5), "SegmentationTask"),
        (MAPS[:, None], "Conv", (3, 4, 5), "SegmentationTask"),
        (MASKS, "Sigmoid", (1, 4, 5), "SegmentationTask"),
        (MASKS[:, None], "Sigmoid", (4, 5), "SegmentationTask"),
        (MASKS.astype(np.float32), "HardSigmoid", (4, 5, 1), "SegmentationTask"),
        (NUMBERS, "Gemm", (2,), "RegressionTask"),
        (RNG.random((6, 4, 5)), "Sigmoid", (1, 4, 5), "RegressionTask"),
        (RNG.random((6, 3)), "Sigmoid", (3,), "RegressionTask"),
        (10 * MASKS, "Gemm", (1, 4, 5), "RegressionTask"),
        (NUMBERS[:, 0], "Gemm", (1,), "RegressionTask"),
        (np.arange(6) * 10, "Gemm", (1,), "RegressionTask"),
        (None, "Gemm", (3,), "DistillationTask"),
    ],
)
def test_labels_and_outputs_tell_the_task(
    target: np.ndarray, op: str, shape: tuple[int, ...], kind: str
):
    assert type(task_of(target, (op, shape))).__name__ == kind


def test_labels_are_left_aside_where_the_original_is_to_be_imitated():
    assert (
        type(task_of(CLASSES, ("Gemm", (3,)), kind="distillation")).__name__ == "DistillationTask"
    )


def test_two_classes_and_one_number_without_a_sigmoid_have_to_be_told():
    with pytest.raises(InputError) as caught:
        task_of(BINARY, ("Gemm", (1,)))
    assert 'kind = "classification" or "regression"' in caught.value.hint
    assert task_of(BINARY, ("Gemm", (1,)), kind="classification").is_single
    assert type(task_of(BINARY, ("Gemm", (1,)), kind="regression")).__name__ == "RegressionTask"


def test_a_single_score_has_no_largest_one_among_others():
    assert not task_of(BINARY, ("Sigmoid", (1,))).output.has_argmax
    assert task_of(CLASSES, ("Gemm", (3,))).output.has_argmax


def test_two_classes_of_pixels_and_one_channel_without_a_sigmoid_have_to_be_told():
    with pytest.raises(InputError) as caught:
        task_of(MASKS, ("Conv", (1, 4, 5)))
    assert 'kind = "segmentation" or "regression"' in caught.value.hint
    task = task_of(MASKS, ("Conv", (1, 4, 5)), kind="segmentation")
    assert (task.is_single, task.is_probability, task.classes) == (True, False, 2)
    assert type(task_of(MASKS, ("Conv", (1, 4, 5)), kind="regression")).__name__ == "RegressionTask"


def test_positions_may_have_two_classes_and_one_score():
    assert task_of(TOKENS % 2, ("Sigmoid", (7, 1)), kind="classification").is_single
    with pytest.raises(InputError, match=r"0\.\.2, the model has 2 classes"):
        task_of(TOKENS, ("Sigmoid", (7,)), kind="classification")


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_one_hot_rows_are_what_the_settings_say(kind: Any):
    assert task_of(HOT, ("Gemm", (3,)), kind=kind).describe_output().kind == kind


def test_the_axis_that_one_hot_labels_mark_is_that_of_the_classes():
    cube = np.eye(4)[RNG.integers(0, 4, (6, 4, 4))]
    task = task_of(cube, ("Softmax", (4, 4, 4)))
    assert (task.one_hot, task.axis) == (3, 3)


def test_a_line_in_a_mask_marks_no_class():
    line = np.eye(4)[RNG.integers(0, 4, (6, 5))].swapaxes(1, 2)  # one pixel in each column
    assert task_of(line, ("Conv", (1, 4, 5)), kind="segmentation").is_single
    with pytest.raises(InputError) as caught:
        task_of(line, ("Conv", (1, 4, 5)))
    assert 'kind = "segmentation" or "regression"' in caught.value.hint


def test_each_token_of_sequences_may_have_one_score():
    ragged = RaggedSamples(np.array([0, 1, 1, 0, 1, 0]), np.array([0, 2, 5, 6]), pad=-100)
    split = Split("train", {}, {TARGET: ragged}, np.arange(3))
    data = DatasetSplits(split, split, split, None, "")
    task = find_task(data, one_node_each("Sigmoid"), [(2, 3)], 2, TaskSettings())
    assert (type(task).__name__, task.is_single) == ("PositionTask", True)  # type: ignore[attr-defined]


def test_an_axis_that_the_graph_leaves_open_is_none_of_classes():
    ragged = RaggedSamples(np.array([0, 1, 1, 0, 1, 0]), np.array([0, 2, 5, 6]), pad=-100)
    split = Split("train", {}, {TARGET: ragged}, np.arange(3))
    target = LabelSpec.of(DatasetSplits(split, split, split, None, ""))
    assert class_axis(target, OutputSpec(0, "y", (3, 1), "Sigmoid", frozenset({1}))) is None
    assert class_axis(target, OutputSpec(0, "y", (4, 3), "Gemm", frozenset({2}))) == 1


def test_settings_may_say_what_would_be_told():
    assert task_of(HOT, ("Sigmoid", (3,)), kind="classification").one_hot == 1
    assert task_of(HOT_MAPS, ("Conv", (3, 4, 5)), kind="segmentation").one_hot == 1
    assert task_of(MASKS, ("Sigmoid", (1, 4, 5)), kind="segmentation").is_single


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([0, 0, 0], "sample 10501 mark 0 classes"),
        ([1, 1, 0], "mark 2 classes"),
        ([2, 0, 0], "hold 2"),
    ],
)
def test_a_row_that_is_not_one_hot_is_refused_wherever_it_is(row: list[int], said: str):
    labels = np.tile(HOT, (4000, 1))
    labels[10501] = row
    assert not (
        np.linspace(0, 23999, 10000).astype(int) == 10501
    ).any()  # nobody looked there when it was told
    with pytest.raises(InputError, match=said) as caught:
        task_of(labels, ("Gemm", (3,)))
    assert 'kind = "multilabel"' in caught.value.hint


def test_one_hot_rows_are_told_to_become_class_numbers():
    with pytest.raises(InputError) as caught:
        task_of(np.eye(6), ("Softmax", (7,)))
    assert "argmax(axis=1)" in caught.value.hint
    assert (
        type(task_of(np.eye(6), ("Softmax", (6,)), kind="multilabel")).__name__ == "MultilabelTask"
    )


def test_labels_that_fit_no_output_are_refused_with_the_outputs():
    with pytest.raises(InputError, match="'y0' of shape 5 a sample"):
        task_of(MAPS, ("Gemm", (5,)))


def test_the_first_output_is_meant_where_it_fits():
    assert task_of(CLASSES, ("Gemm", (3,)), ("Gemm", (8,))).output.position == 0


def test_the_one_output_that_fits_is_meant():
    assert task_of(CLASSES, ("Conv", (9, 4, 4)), ("Gemm", (8,))).output.position == 1


def test_several_outputs_that_fit_have_to_be_told_apart():
    outputs = (("Conv", (9, 4, 4)), ("Gemm", (8,)), ("Gemm", (3,)))
    with pytest.raises(InputError, match="several outputs fit the labels") as caught:
        task_of(CLASSES, *outputs)
    assert 'output = "…"' in caught.value.hint
    assert task_of(CLASSES, *outputs, output="y2").classes == 3


def test_an_output_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(InputError) as caught:
        task_of(CLASSES, ("Gemm", (3,)), output="logits")
    assert "'y0'" in caught.value.hint


@pytest.mark.parametrize("shape", [(3,), (3, 1, 1)])
@pytest.mark.parametrize("labels", [MULTI_HOT, MULTI_HOT.astype(np.float32)])
def test_whole_numbers_beside_sigmoids_are_labels_and_a_two_among_them_is_refused(
    labels: np.ndarray, shape: Any
):
    labels = labels.copy()
    labels[3, 2] = 2
    with pytest.raises(InputError, match="the labels of sample 3 hold 2") as caught:
        task_of(labels, ("Sigmoid", shape))
    assert "0" in caught.value.hint


@pytest.mark.parametrize(
    ("labels", "said"), [(CLASSES, "0..2, the model has 2"), (CLASSES - 1, "label -1")]
)
def test_whole_numbers_beside_one_sigmoid_are_classes(labels: np.ndarray, said: str):
    with pytest.raises(InputError, match=said):
        task_of(labels, ("Sigmoid", (1,)))


@pytest.mark.parametrize(
    ("labels", "op", "shape", "void"),
    [
        (MAPS.astype(np.uint8), "Conv", (3, 4, 5), 255),
        (MAPS.astype(np.float32), "Conv", (3, 4, 5), 255),
        (MASKS, "Sigmoid", (1, 4, 5), 255),
        (TOKENS, "Gemm", (7, 3), 99),
        (TOKENS, "Gemm", (7, 3), -1),
    ],
)
def test_a_label_that_may_mean_nothing_is_named_with_its_setting(labels, op, shape, void):
    labels = labels.copy()
    labels[2, 3] = void
    with pytest.raises(InputError, match=str(void)) as caught:
        task_of(labels, (op, shape))
    assert f"ignore_index = {void} under [task]" in caught.value.hint
    assert task_of(labels, (op, shape), ignore_index=void).ignored == void


def test_masks_of_0_and_255_may_mean_two_classes():
    with pytest.raises(InputError) as caught:
        task_of(MASKS * 255, ("Sigmoid", (4, 5)))
    assert "ignore_index = 255 under [task]" in caught.value.hint
    assert "write 1 for 255" in caught.value.hint


def test_no_label_is_called_void_where_others_are_wrong_too():
    with pytest.raises(InputError) as caught:
        task_of(MAPS + 100, ("Conv", (3, 4, 5)))
    assert "ignore_index" not in caught.value.hint


def test_maps_that_count_from_1_are_told_so():
    with pytest.raises(InputError, match=r"1\.\.3, the model has 3") as caught:
        task_of(MAPS + 1, ("Conv", (3, 4, 5)))
    assert "subtract 1" in caught.value.hint


def test_a_class_is_a_whole_number_wherever_it_is():
    labels = np.tile(TOKENS, (4000, 1)).astype(np.float32)
    labels[10501, 2] = 0.5
    with pytest.raises(InputError, match=r"the labels hold 0\.5, which is no class number"):
        task_of(labels, ("Gemm", (7, 3)))


@pytest.mark.parametrize(
    ("target", "shape", "said"),
    [
        (CLASSES + 1, (3,), "1..3, the model has 3 classes"),
        (CLASSES, (2,), "sample 2 has the label 2: .* 0..2, the model has 2 classes"),
        (TOKENS - 1, (7, 3), "label -1, which is no class number"),
        (np.array([0, -1, 2, 0, 1, 2]), (3,), "label -1, which is no class number"),
    ],
)
def test_classes_that_the_model_has_not_are_refused(
    target: np.ndarray, shape: tuple[int, ...], said: str
):
    with pytest.raises(InputError, match=said):
        task_of(target, ("Gemm", shape))


def test_positions_may_have_no_label():
    labels = TOKENS.copy()
    labels[:, 3:] = -100
    assert task_of(labels, ("Gemm", (7, 3))).ignored == -100


def test_multi_hot_labels_are_zero_or_one():
    with pytest.raises(InputError, match="the labels of sample 1 hold 2"):
        task_of(
            np.array([[1, 0], [2, 0], [0, 1], [1, 1], [0, 0], [1, 0]]),
            ("Sigmoid", (2,)),
            kind="multilabel",
        )


@pytest.mark.parametrize(
    ("target", "op", "shape", "asked"),
    [
        (CLASSES, "Gemm", (3,), TaskSummary("classification", "y1", class_axis=1)),
        (HOT_MAPS, "Gemm", (3, 4, 5), TaskSummary("segmentation", "y1", class_axis=1)),
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
def test_a_task_says_what_is_asked_of_which_output(
    target: Any, op: str, shape: tuple[int, ...], asked: TaskSummary
):
    assert (
        task_of(target, ("Conv", (9, 9, 9, 9)), (op, shape), output="y1").describe_output() == asked
    )


def test_of_several_outputs_that_are_imitated_none_is_meant():
    assert task_of(None, ("Gemm", (3,)), ("Gemm", (3,))).describe_output() == TaskSummary(
        "distillation"
    )


def test_targets_that_never_vary_are_refused():
    with pytest.raises(InputError, match="the same number"):
        task_of(np.full(6, 2.5), ("Gemm", (1,)))
