"""Right answers, agreement and variance explained, defined once for torch and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from onnx import helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.tasks.evaluator import Evaluator
from ltp_pipeline.tasks.imitation import DistillationTask
from ltp_pipeline.tasks.losses import relative_error, softened_divergence
from ltp_pipeline.tasks.protocol import TaskOutput
from tests.support.models import one_node_each
from tests.support.samples import by_position, split_of

SCORES = TaskOutput(0, "scores", "scores")
VALUES = TaskOutput(0, "values", "values")


def imitation(
    *outputs: TaskOutput, original: Callable[[np.ndarray], list[np.ndarray]] = lambda x: [x]
) -> Evaluator:
    return Evaluator(DistillationTask(outputs), by_position(original))


def test_agreement_of_scores_is_the_share_of_samples_with_the_same_class():
    scores = np.eye(4, dtype=np.float32)
    evaluator = imitation(SCORES)
    shifted = lambda x: [np.where(np.arange(4) == 0, 2, x)]  # noqa: E731
    found, each = evaluator(by_position(shifted), split_of(scores))
    assert each.tolist() == [True, False, False, False]
    assert found.value == 0.25


def test_a_few_samples_far_off_cost_as_much_as_their_squared_error_says():
    """A sample cannot lose more than itself in a share of samples; in a variance it can."""
    values = np.arange(100, dtype=np.float64)[:, None]
    evaluator = imitation(VALUES)
    found, _ = evaluator(by_position(lambda x: [np.where(x == 7, 207, x)]), split_of(values))
    assert found.value == pytest.approx(1 - 200**2 / 100 / values.var())


def test_explained_of_values_is_one_minus_squared_error_over_variance():
    values = np.random.default_rng(0).normal(5, 2, (200, 3)).astype(np.float32)
    noise = np.random.default_rng(1).normal(0, 0.2, (200, 3)).astype(np.float32)
    lookup = {row.tobytes(): row + n for row, n in zip(values, noise, strict=True)}
    evaluator = imitation(VALUES)
    found, each = evaluator(
        by_position(lambda x: [np.stack([lookup[row.tobytes()] for row in x])]), split_of(values)
    )
    expected = 1 - np.square(noise).sum() / np.square(values - values.mean(0)).sum()
    assert found.value == pytest.approx(expected, abs=1e-5)
    assert each.mean() == found.value


def test_an_output_that_is_not_finite_agrees_with_nothing():
    evaluator = imitation(VALUES)
    found, _ = evaluator(
        by_position(lambda x: [x * np.nan]), split_of(np.random.default_rng(0).normal(size=(10, 2)))
    )
    assert found.value == 0.0


def test_the_original_agrees_with_itself():
    evaluator = imitation(SCORES)
    assert (
        evaluator.evaluate_original(by_position(lambda x: [x]), split_of(np.eye(3)))[0].value == 1.0
    )


def test_only_behind_softmax_are_outputs_taken_for_scores():
    shapes = [(2, 10), (2, 10), (2, 10), (2, 10), (2, 5, 4), None]
    found = DistillationTask.of(
        one_node_each("Gemm", "Softmax", "LogSoftmax", "Sigmoid", "Softmax", "TopK"), shapes, 2
    )
    kinds = ["values", "scores", "scores", "values", "values"]
    assert [(o.position, o.kind) for o in found.outputs] == list(enumerate(kinds))
    assert [o.has_argmax for o in found.outputs] == [True, True, True, False, False]


def test_a_softmax_is_seen_through_a_reshape():
    model = one_node_each("Softmax")
    model.node.append(helper.make_node("Reshape", ["y0", "shape"], ["rows"]))
    model.output[0].name = "rows"
    assert DistillationTask.of(model, [(2, 10)], 2).outputs[0].kind == "scores"


@pytest.mark.parametrize(
    ("makers", "imitate", "name"),
    [
        (("Softmax",), "auto", "agreement"),
        (("Softmax", "LogSoftmax"), "auto", "agreement"),
        (("Gemm",), "auto", "r2_vs_original"),
        (("Softmax", "Gemm"), "auto", "r2_vs_original"),
        (("Gemm",), "logits", "agreement"),
        (("Sigmoid",), "logits", "agreement"),
        (("Softmax",), "values", "r2_vs_original"),
    ],
)
def test_agreement_is_asked_only_where_every_output_scores_classes(makers, imitate, name):
    assert (
        DistillationTask.of(one_node_each(*makers), [(2, 4)] * len(makers), 2, imitate).metric.name
        == name
    )


def test_saying_scores_leaves_outputs_of_another_shape_values():
    found = DistillationTask.of(one_node_each("Gemm", "Conv"), [(2, 4), (2, 3, 8, 8)], 2, "logits")
    assert [o.kind for o in found.outputs] == ["scores", "values"]


def test_saying_scores_where_no_output_has_their_shape_is_refused():
    with pytest.raises(InputError, match="no output has the shape of class scores: 'y0'"):
        DistillationTask.of(one_node_each("Conv"), [(2, 3, 8, 8)], 2, "logits")


def test_beside_the_variance_explained_stands_the_share_of_equal_argmax():
    values = np.eye(4)
    logits = TaskOutput(0, "y", "values", maybe_scores=True)
    evaluator = imitation(logits)
    found, _ = evaluator(
        by_position(lambda x: [np.where(np.arange(4) == 0, 0.75, x)]), split_of(values)
    )
    assert found.argmax_agreement == 1.0
    assert found.value == pytest.approx(1 - (3 * 0.75**2 + 0.25**2) / 3)
    assert (
        evaluator.evaluate_original(by_position(lambda x: [x]), split_of(values))[
            0
        ].argmax_agreement
        == 1.0
    )
    bare = imitation(VALUES)
    assert bare(by_position(lambda x: [x]), split_of(values))[0].argmax_agreement is None
    assert (
        bare.evaluate_original(by_position(lambda x: [x]), split_of(values))[0].argmax_agreement
        is None
    )


def test_outputs_of_both_kinds_are_all_judged_by_their_variance():
    outputs = (SCORES, TaskOutput(1, "size", "values"))
    evaluator = imitation(*outputs, original=lambda x: [x, x[:, :1]])
    found, _ = evaluator(
        by_position(lambda x: [x, np.full((len(x), 1), 0.25)]), split_of(np.eye(4))
    )
    assert found.value == pytest.approx(0.5)  # all of the first, nothing but the mean of the second
    assert found.argmax_agreement == 1.0


def test_a_model_without_rows_of_numbers_is_refused():
    with pytest.raises(InputError, match="one row per sample"):
        DistillationTask.of(one_node_each("NonMaxSuppression", "Gemm"), [None, (7, 3)], 2)


def test_a_network_that_gives_nan_agrees_with_nothing():
    scores = np.array([[1, 0], [1, 0]], np.float32)
    found, _ = imitation(SCORES)(by_position(lambda x: [x * np.nan]), split_of(scores))
    assert found.value == 0.0


LOGITS, LABELS = torch.randn(8, 5), torch.randint(0, 5, (8,))


def test_without_labels_every_output_counts_alike():
    outputs = (TaskOutput(0, "class", "scores"), TaskOutput(2, "boxes", "values"))
    found = [LOGITS, torch.randn(8, 3, 4)]
    taught = [torch.randn(8, 5), torch.randn(8, 3, 4)]
    loss = DistillationTask(outputs).compute_loss(found, {}, taught)
    expected = (softened_divergence(found[0], taught[0]) + relative_error(found[1], taught[1])) / 2
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
