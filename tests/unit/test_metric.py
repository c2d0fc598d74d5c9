"""Accuracy and agreement, defined once for torch and onnxruntime."""

import numpy as np
import pytest
from onnx import helper

from ltp_pipeline.data.samples import ArraySamples, Split
from ltp_pipeline.errors import InputError
from ltp_pipeline.stages import metric
from ltp_pipeline.stages.metric import Judge, Metric, Output

SCORES = Output(0, "scores", "scores")
VALUES = Output(0, "values", "values")


def split_of(samples: np.ndarray, labels: np.ndarray | None = None) -> Split:
    return Split("test", ArraySamples(samples), labels, np.arange(len(samples)), lambda x: x)


def graph(*makers: str):
    nodes = [helper.make_node(op, ["x"], [f"y{i}"]) for i, op in enumerate(makers)]
    outputs = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(len(makers))]
    return helper.make_graph(nodes, "g", [], outputs)


def test_top1_counts_the_label_that_scores_highest_and_the_first_among_equals():
    scores = np.array([[1, 2, 0], [3, 3, 0], [3, 3, 0], [np.nan, 0, 0]], np.float32)
    found, each = Judge(Metric("top-1", (SCORES,)))(lambda x: [x], split_of(scores, np.array([1, 0, 1, 0])))
    assert each.tolist() == [True, True, False, False]
    assert found.top1 == 0.5
    assert found.top5 is None


def test_agreement_of_scores_is_the_share_of_samples_with_the_same_class():
    scores = np.eye(4, dtype=np.float32)
    judge = Judge(Metric("agreement", (SCORES,)), lambda x: [x])
    shifted = lambda x: [np.where(np.arange(4) == 0, 2, x)]  # noqa: E731
    found, each = judge(shifted, split_of(scores))
    assert each.tolist() == [True, False, False, False]
    assert found.top1 == 0.25


def test_agreement_of_values_is_the_variance_explained():
    values = np.random.default_rng(0).normal(5, 2, (200, 3)).astype(np.float32)
    noise = np.random.default_rng(1).normal(0, 0.2, (200, 3)).astype(np.float32)
    lookup = {row.tobytes(): row + n for row, n in zip(values, noise, strict=True)}
    judge = Judge(Metric("agreement", (VALUES,)), lambda x: [x])
    found, _ = judge(lambda x: [np.stack([lookup[row.tobytes()] for row in x])], split_of(values))
    expected = 1 - np.square(noise).sum() / np.square(values - values.mean(0)).sum()
    assert found.top1 == pytest.approx(expected, abs=1e-3)


def test_an_output_that_is_not_finite_agrees_with_nothing():
    judge = Judge(Metric("agreement", (VALUES,)), lambda x: [x])
    found, _ = judge(lambda x: [x * np.nan], split_of(np.random.default_rng(0).normal(size=(10, 2))))
    assert found.top1 == 0.0


def test_the_original_agrees_with_itself():
    judge = Judge(Metric("agreement", (SCORES,)), lambda x: [x])
    assert judge.of_the_original(lambda x: [x], split_of(np.eye(3)))[0].top1 == 1.0


def test_outputs_are_read_by_shape_and_by_the_node_that_makes_them():
    found = metric.agreement(graph("Gemm", "Sigmoid", "Concat", "TopK"), [(2, 10), (2, 10), (2, 5, 4), None], 2)
    assert [(o.position, o.kind) for o in found.outputs] == [(0, "scores"), (1, "values"), (2, "values")]


def test_a_sigmoid_is_seen_through_a_reshape():
    model = graph("Sigmoid")
    model.node.append(helper.make_node("Reshape", ["y0", "shape"], ["rows"]))
    model.output[0].name = "rows"
    assert metric.agreement(model, [(2, 10)], 2).outputs[0].kind == "values"


def test_a_regressor_of_several_numbers_can_be_called_one():
    assert metric.agreement(graph("Gemm"), [(2, 4)], 2, "values").outputs[0].kind == "values"


def test_a_model_without_rows_of_numbers_is_refused():
    with pytest.raises(InputError, match="one row per sample"):
        metric.agreement(graph("NonMaxSuppression", "Gemm"), [None, (7, 3)], 2)


def test_labels_ask_for_class_scores():
    with pytest.raises(InputError, match="no class score"):
        metric.top1(graph("Gemm"), [(2, 1)], 2)


def test_a_network_that_gives_nan_agrees_with_nothing():
    scores = np.array([[1, 0], [1, 0]], np.float32)
    found, _ = Judge(Metric("agreement", (SCORES,)), lambda x: [x])(lambda x: [x * np.nan], split_of(scores))
    assert found.top1 == 0.0
