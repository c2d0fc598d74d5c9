"""Agreement with the original and R² against it, equal for torch and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from onnx import helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.evaluator import Evaluator
from ltp_pipeline.tasks.losses import relative_error, softened_divergence
from ltp_pipeline.tasks.protocol import TaskOutput
from tests.support.models import one_node_each
from tests.support.samples import by_position, split_of

SCORES = TaskOutput(0, "scores", "scores")
VALUES = TaskOutput(0, "values", "values")
LOGITS = TaskOutput(0, "logits", "values", may_be_scores=True)
RNG = np.random.default_rng(0)
Compute = Callable[[np.ndarray], list[np.ndarray]]


def evaluator_of(*outputs: TaskOutput, original: Compute = lambda x: [x]) -> Evaluator:
    return Evaluator(DistillationTask(outputs), by_position(original))


def test_agreement_is_the_fraction_of_samples_with_equal_argmax():
    scores = np.eye(4, dtype=np.float32)
    compute = by_position(lambda x: [np.where(np.arange(4) == 0, 2, x)])
    result, statistics = evaluator_of(SCORES)(compute, split_of(scores))
    assert statistics.tolist() == [True, False, False, False]
    assert result.value == 0.25


def test_r2_of_one_outlier_has_its_whole_squared_error():
    """A sample cannot cost more than itself in a fraction of samples; in a variance it can."""
    values = np.arange(100, dtype=np.float64)[:, None]
    compute = by_position(lambda x: [np.where(x == 7, 207, x)])
    result, _ = evaluator_of(VALUES)(compute, split_of(values))
    assert result.value == pytest.approx(1 - 200**2 / 100 / values.var())


def test_r2_is_one_minus_squared_error_over_variance():
    values = RNG.normal(5, 2, (200, 3)).astype(np.float32)
    noise = RNG.normal(0, 0.2, (200, 3)).astype(np.float32)
    noisy = {row.tobytes(): row + n for row, n in zip(values, noise, strict=True)}
    compute = by_position(lambda x: [np.stack([noisy[row.tobytes()] for row in x])])
    result, statistics = evaluator_of(VALUES)(compute, split_of(values))
    expected = 1 - np.square(noise).sum() / np.square(values - values.mean(0)).sum()
    assert result.value == pytest.approx(expected, abs=1e-5)
    assert statistics.mean() == result.value


@pytest.mark.parametrize("output", [SCORES, VALUES])
def test_metric_of_nan_is_zero(output: TaskOutput):
    compute = by_position(lambda x: [x * np.nan])
    samples = np.array([[1, 0], [1, 0.5]], np.float32)
    assert evaluator_of(output)(compute, split_of(samples))[0].value == 0.0


def test_evaluate_original_is_perfect_without_measurement():
    def fail(inputs: object) -> list[np.ndarray]:
        raise AssertionError(inputs)

    result, statistics = evaluator_of(SCORES).evaluate_original(fail, split_of(np.eye(3)))
    assert result.value == 1.0
    assert statistics.tolist() == [True] * 3


def test_from_graph_outputs_behind_softmax_are_scores():
    operators = ("Gemm", "Softmax", "LogSoftmax", "Sigmoid", "Softmax", "TopK")
    shapes = [(2, 10), (2, 10), (2, 10), (2, 10), (2, 5, 4), None]
    task = DistillationTask.from_graph(one_node_each(*operators), shapes, 2)
    kinds = ["values", "scores", "scores", "values", "values"]
    assert [(o.position, o.kind) for o in task.outputs] == list(enumerate(kinds))
    assert [o.has_argmax for o in task.outputs] == [True, True, True, False, False]


def test_from_graph_looks_through_reshape():
    model = one_node_each("Softmax")
    model.node.append(helper.make_node("Reshape", ["y0", "shape"], ["rows"]))
    model.output[0].name = "rows"
    assert DistillationTask.from_graph(model, [(2, 10)], 2).outputs[0].kind == "scores"


@pytest.mark.parametrize(
    ("operators", "outputs_as", "name"),
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
def test_metric_is_agreement_if_all_outputs_are_scores(operators, outputs_as, name):
    shapes = [(2, 4)] * len(operators)
    task = DistillationTask.from_graph(one_node_each(*operators), shapes, 2, outputs_as)
    assert task.metric.name == name


def test_from_graph_as_logits_leaves_other_shapes_values():
    shapes = [(2, 4), (2, 3, 8, 8)]
    task = DistillationTask.from_graph(one_node_each("Gemm", "Conv"), shapes, 2, "logits")
    assert [o.kind for o in task.outputs] == ["scores", "values"]


def test_from_graph_as_logits_without_such_shape_raises_input_error():
    with pytest.raises(InputError) as caught:
        DistillationTask.from_graph(one_node_each("Conv"), [(2, 3, 8, 8)], 2, "logits")
    assert "'y0'" in caught.value.message
    assert "train.distill_outputs_as" in caught.value.hint


def test_from_graph_without_rows_per_sample_raises_input_error():
    graph = one_node_each("NonMaxSuppression", "Gemm")
    with pytest.raises(InputError) as caught:
        DistillationTask.from_graph(graph, [None, (7, 3)], 2)
    assert "NonMaxSuppression" in caught.value.hint


def test_r2_comes_with_agreement_if_values_may_be_scores():
    split = split_of(np.eye(4))
    compute = by_position(lambda x: [np.where(np.arange(4) == 0, 0.75, x)])
    result, _ = evaluator_of(LOGITS)(compute, split)
    assert result.argmax_agreement == 1.0
    assert result.value == pytest.approx(1 - (3 * 0.75**2 + 0.25**2) / 3)
    original = by_position(lambda x: [x])
    assert evaluator_of(LOGITS).evaluate_original(original, split)[0].argmax_agreement == 1.0
    assert evaluator_of(VALUES)(original, split)[0].argmax_agreement is None
    assert evaluator_of(VALUES).evaluate_original(original, split)[0].argmax_agreement is None


def test_r2_of_outputs_of_both_kinds_is_their_mean():
    outputs = (SCORES, TaskOutput(1, "size", "values"))
    evaluator = evaluator_of(*outputs, original=lambda x: [x, x[:, :1]])
    compute = by_position(lambda x: [x, np.full((len(x), 1), 0.25)])
    result, _ = evaluator(compute, split_of(np.eye(4)))
    assert result.value == pytest.approx(0.5)  # 1 for the first, 0 for the mean of the second
    assert result.argmax_agreement == 1.0


def test_compute_loss_averages_over_outputs():
    outputs = (TaskOutput(0, "class", "scores"), TaskOutput(2, "boxes", "values"))
    student = [torch.randn(8, 5), torch.randn(8, 3, 4)]
    teacher = [torch.randn(8, 5), torch.randn(8, 3, 4)]
    loss = DistillationTask(outputs).compute_loss(student, {}, teacher)
    divergence = softened_divergence(student[0], teacher[0])
    expected = (divergence + relative_error(student[1], teacher[1])) / 2
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
