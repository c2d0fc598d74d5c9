"""Which task a model and its data ask for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ltp_pipeline.config import TaskSettings
from ltp_pipeline.data.samples import Data
from ltp_pipeline.errors import InputError
from ltp_pipeline.tasks import find_task
from tests.support.models import one_node_each
from tests.support.samples import split_of, unread

RNG = np.random.default_rng(0)
CLASSES = np.arange(6) % 3
BINARY = np.arange(6) % 2
MULTI_HOT = np.array([[1, 0, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
MAPS = RNG.integers(0, 3, (6, 4, 5))
TOKENS = RNG.integers(0, 3, (6, 7))
NUMBERS = RNG.normal(size=(6, 2))


def data_with(target: np.ndarray | None) -> Data:
    split = split_of(np.zeros((6, 4), np.float32), target, prepare=unread)
    classes = None if split.labels is None else int(split.labels.max()) + 1
    return Data(split, split, split, classes, "")


def task_of(target: np.ndarray | None, *outputs: tuple[str, tuple[int, ...]], **settings: Any) -> Any:
    graph = one_node_each(*(op for op, _ in outputs))
    shapes = [(2, *shape) for _, shape in outputs]
    return find_task(data_with(target), graph, shapes, 2, TaskSettings(**settings))


@pytest.mark.parametrize(
    ("target", "op", "shape", "kind"),
    [
        (CLASSES, "Gemm", (3,), "Classification"),
        (CLASSES, "Gemm", (3, 1, 1), "Classification"),
        (BINARY, "Sigmoid", (1,), "Classification"),
        (BINARY, "Sigmoid", (), "Classification"),
        (TOKENS, "Gemm", (7, 3), "Positions"),
        (TOKENS, "Gemm", (3, 7), "Positions"),
        (MULTI_HOT, "Sigmoid", (3,), "Multilabel"),
        (MULTI_HOT.astype(np.float32), "Gemm", (3,), "Multilabel"),
        (MAPS, "Conv", (3, 4, 5), "Segmentation"),
        (MAPS[:, None], "Conv", (3, 4, 5), "Segmentation"),
        (NUMBERS, "Gemm", (2,), "Regression"),
        (NUMBERS[:, 0], "Gemm", (1,), "Regression"),
        (np.arange(6) * 10, "Gemm", (1,), "Regression"),
        (None, "Gemm", (3,), "Imitation"),
    ],
)
def test_labels_and_outputs_tell_the_task(target: np.ndarray, op: str, shape: tuple[int, ...], kind: str):
    assert type(task_of(target, (op, shape))).__name__ == kind


def test_labels_are_left_aside_where_the_original_is_to_be_imitated():
    assert type(task_of(CLASSES, ("Gemm", (3,)), kind="imitate")).__name__ == "Imitation"


def test_two_classes_and_one_number_without_a_sigmoid_have_to_be_told():
    with pytest.raises(InputError) as caught:
        task_of(BINARY, ("Gemm", (1,)))
    assert 'kind = "classify" or "regress"' in caught.value.remedy
    assert task_of(BINARY, ("Gemm", (1,)), kind="classify").is_single
    assert type(task_of(BINARY, ("Gemm", (1,)), kind="regress")).__name__ == "Regression"


def test_a_single_score_has_no_largest_one_among_others():
    assert not task_of(BINARY, ("Sigmoid", (1,))).output.has_argmax
    assert task_of(CLASSES, ("Gemm", (3,))).output.has_argmax


def test_one_hot_rows_are_told_to_become_class_numbers():
    with pytest.raises(InputError) as caught:
        task_of(np.eye(6), ("Softmax", (7,)))
    assert "argmax(axis=1)" in caught.value.remedy
    assert type(task_of(np.eye(6), ("Softmax", (6,)), kind="multilabel")).__name__ == "Multilabel"


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
    assert 'output = "…"' in caught.value.remedy
    assert task_of(CLASSES, *outputs, output="y2").classes == 3


def test_an_output_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(InputError) as caught:
        task_of(CLASSES, ("Gemm", (3,)), output="logits")
    assert "'y0'" in caught.value.remedy


@pytest.mark.parametrize(
    ("target", "shape", "said"),
    [
        (CLASSES + 1, (3,), "1..3, the model has 3 classes"),
        (CLASSES, (2,), "0..2, the model has 2 classes"),
        (TOKENS - 1, (7, 3), "hold -1, which is no class number"),
        (np.array([0, -1, 2, 0, 1, 2]), (3,), "hold -1, which is no class number"),
    ],
)
def test_classes_that_the_model_has_not_are_refused(target: np.ndarray, shape: tuple[int, ...], said: str):
    with pytest.raises(InputError, match=said):
        task_of(target, ("Gemm", shape))


def test_positions_may_have_no_label():
    labels = TOKENS.copy()
    labels[:, 3:] = -100
    assert task_of(labels, ("Gemm", (7, 3))).ignored == -100


def test_multi_hot_labels_are_zero_or_one():
    with pytest.raises(InputError, match="the labels of sample 1 hold 2"):
        task_of(np.array([[1, 0], [2, 0], [0, 1], [1, 1], [0, 0], [1, 0]]), ("Sigmoid", (2,)), kind="multilabel")


def test_targets_that_never_vary_are_refused():
    with pytest.raises(InputError, match="the same number"):
        task_of(np.full(6, 2.5), ("Gemm", (1,)))
