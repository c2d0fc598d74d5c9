"""The user's own loss and metric as a task."""

from __future__ import annotations

import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ltp_pipeline.data.dataset import Batch
from ltp_pipeline.data.loader import iter_batches
from ltp_pipeline.errors import InputError, TaskFailed
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.settings.schema import DataSettings
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_data import open_custom_data
from ltp_pipeline.tasks.custom_task import CustomTaskAdapter
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.protocol import EvaluatedBatch, TaskOutput

DISTILLATION = DistillationTask((TaskOutput(0, "y", "values"),))
TWO_SAMPLES = Batch({"x": np.zeros((2, 1))}, {"is_positive": np.zeros(2)})
RNG = np.random.default_rng(0)


def adapt(**parts: Any) -> CustomTaskAdapter:
    task = CustomTask.load(SimpleNamespace(dataset=len, fingerprint="1", **parts))
    return CustomTaskAdapter(task, DISTILLATION)


def batches_of(outputs: np.ndarray, **targets: Any) -> list[EvaluatedBatch]:
    return [EvaluatedBatch([outputs], Batch({"x": outputs}, {"x": outputs, **targets}), None)]


def statistics_of(task: CustomTaskAdapter, outputs: np.ndarray, **targets: Any) -> np.ndarray:
    return task.sample_statistics(batches_of(outputs, **targets), ())


def draw_numbers() -> tuple[float, float, float]:
    return random.random(), np.random.rand(), float(torch.rand(1))  # noqa: S311 - not a secret


def seed_generators() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def test_custom_code_does_not_change_random_numbers_of_training(tmp_path: Path):
    file = tmp_path / "my_task.py"
    file.write_text(
        "import random, numpy as np, torch\n"
        "def draw(*_): return random.random(), np.random.rand(), torch.rand(1)\n"
        "draw()\n"
        "def dataset(split): return draw() and [{'x': np.zeros(2)} for _ in range(20)]\n"
        "def loss(outputs, batch): return draw()[2] * outputs['y'].sum()\n"
        "def score(outputs, batch): return draw() and torch.ones(len(batch['x']))\n"
    )
    seed_generators()
    expected = draw_numbers()
    seed_generators()
    task = CustomTaskAdapter(CustomTask.load(file), DISTILLATION)
    inputs = [TensorInfo("x", "FLOAT", ("N", 2))]
    split = open_custom_data(task.custom, DataSettings(), inputs, 0).train
    list(iter_batches(split, 4, augment_seed=5))
    task.compute_loss([torch.zeros(2, 1, requires_grad=True)], {}, None)
    statistics_of(task, np.zeros((2, 1)))
    assert draw_numbers() == expected


def test_compute_loss_random_numbers_depend_on_the_step():
    task = adapt(loss=lambda outputs, _: outputs["y"].sum() * np.random.rand())

    def loss_at(step: int) -> float:
        torch.manual_seed(step)
        outputs = [torch.ones(1, 1, requires_grad=True)]
        return float(task.compute_loss(outputs, {}, None).detach())

    assert loss_at(1) == loss_at(1) != loss_at(2)


def test_score_random_numbers_depend_on_the_batch():
    task = adapt(score=lambda *_: [np.random.rand()])
    batches = batches_of(np.zeros((1, 1))) * 2
    first, second = task.sample_statistics(batches, ())
    assert first != second
    assert task.sample_statistics(batches, ()).tolist() == [first, second]


def test_compute_loss_failing_function_shows_the_users_lines():
    def loss(outputs: Any, batch: Any) -> Any:
        return outputs["z"]

    with pytest.raises(TaskFailed) as caught:
        adapt(loss=loss).compute_loss([torch.zeros(2, 2)], {}, None)
    assert re.search(r"\bloss\b.*\bSimpleNamespace\b", caught.value.message)
    assert "KeyError" in caught.value.message
    assert 'return outputs["z"]' in caught.value.traceback_text
    assert "custom_task.py" not in caught.value.traceback_text.replace(str(Path(__file__)), "")


@pytest.mark.parametrize(
    ("loss", "part"), [(torch.zeros(3), "(3,)"), (0.5, "float"), (None, "None")]
)
def test_compute_loss_other_than_one_number_raises_input_error(loss: Any, part: str):
    with pytest.raises(InputError) as caught:
        adapt(loss=lambda *_: loss).compute_loss([torch.zeros(3, 2)], {}, None)
    assert part in caught.value.message


def test_compute_loss_without_gradient_raises_input_error():
    task = adapt(loss=lambda *_: torch.zeros(()))
    with pytest.raises(InputError) as caught:
        task.compute_loss([torch.zeros(2, 1, requires_grad=True)], {}, None)
    assert "detach" in caught.value.hint


@pytest.mark.parametrize(
    "loss",
    [
        lambda outputs, _: outputs["y"].detach().mean(),
        lambda *_: torch.tensor(1.0),
        lambda *_: torch.ones((), requires_grad=True),  # a gradient, but not of the outputs
    ],
)
def test_check_functions_loss_without_gradient_raises_input_error(loss: Any):
    with torch.inference_mode():
        outputs = [torch.zeros(2, 1)]
    with pytest.raises(InputError) as caught:
        adapt(loss=loss, score=lambda *_: [1, 1]).check_functions(outputs, TWO_SAMPLES)
    assert "detach" in caught.value.hint


def test_check_functions_loss_of_nan_raises_input_error():
    task = adapt(loss=lambda *_: torch.tensor(torch.nan))
    with pytest.raises(InputError) as caught:
        task.check_functions([torch.zeros(2, 1)], TWO_SAMPLES)
    assert "nan" in caught.value.message


@pytest.mark.parametrize(
    ("scores", "part"),
    [
        ([1.0], "(1,) for 2 samples"),
        ([1.0, np.nan], "nan"),
        ({"a": 1}, "a dict"),
        ("12", "text"),
        ([[1], [1, 2]], "a list"),
        (None, "None"),
    ],
)
def test_score_of_unusable_values_raises_input_error(scores: Any, part: str):
    with pytest.raises(InputError) as caught:
        statistics_of(adapt(score=lambda *_: scores), np.zeros((2, 1)))
    assert re.search(r"\bscore\b.*\bSimpleNamespace\b", caught.value.message)
    assert part in caught.value.message


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_list", [False, True])
def test_score_may_require_a_gradient(is_list: bool, dtype: torch.dtype):
    scores = torch.ones(2, requires_grad=True).to(dtype)
    task = adapt(score=lambda *_: list(scores) if is_list else scores)
    assert statistics_of(task, np.zeros((2, 1))).tolist() == [1, 1]


class Mean:
    def __init__(self) -> None:
        self.sum = 0.0
        self.count = 0

    def update(self, outputs: Any, batch: Any) -> None:
        self.sum += float(outputs["y"].sum())
        self.count += len(batch["weights"])

    def compute(self) -> float:
        return self.sum / self.count


class Recall:
    """Recall of positives, of which there may be none."""

    def __init__(self) -> None:
        self.found = 0
        self.present = 0

    def update(self, outputs: Any, batch: Any) -> None:
        is_positive = batch["is_positive"] > 0
        self.found += int((is_positive & (outputs["y"][:, 0] > 0)).sum())
        self.present += int(is_positive.sum())

    def compute(self) -> float:
        return self.found / self.present


class QuietRecall(Recall):
    def compute(self) -> float:
        return self.found / self.present if self.present else float("nan")


each_recall = pytest.mark.parametrize("measure", [Recall, QuietRecall])


def returning(value: Any) -> SimpleNamespace:
    return SimpleNamespace(update=lambda *_: 0, compute=lambda: value)


@pytest.mark.parametrize(
    ("measure", "part"),
    [
        (lambda: 3, "update"),
        (lambda: SimpleNamespace(update=len), "compute"),
        (lambda: Mean, "the class Mean"),
        (lambda: returning({"map": 1.0}), "a dict"),
        (lambda: returning([1.0, 2.0]), "(2,)"),
    ],
)
def test_measure_of_unusable_metric_raises_input_error(measure: Any, part: str):
    with pytest.raises(InputError) as caught:
        statistics_of(adapt(measure=measure), np.zeros((2, 1)))
    assert part in caught.value.message


def test_compute_metric_of_scores_is_their_mean_with_the_direction_of_the_metric():
    error = Metric("error", unit="mm", higher_is_better=False, is_fraction=False)
    task = adapt(score=lambda outputs, _: outputs["y"][:, 0].abs(), metric=error)
    before, after = (statistics_of(task, np.full((9, 1), size)) for size in (1.0, 3.0))
    assert task.compute_metric(after, "test").value == 3.0
    assert task.compute_drop_interval(before, after) == (2.0, 2.0)


def test_compute_drop_interval_of_measure_is_close_to_that_of_a_mean():
    task = adapt(measure=Mean)
    before = RNG.normal(size=(400, 1))
    after = before - 0.3 - 0.5 * RNG.normal(size=(400, 1))
    statistics = [statistics_of(task, y, weights=list(range(400))) for y in (before, after)]
    result = task.compute_metric(statistics[0], "test")
    assert result.value == pytest.approx(before.mean(), abs=1e-6)
    assert result.samples == 400
    differences = before - after
    half = 1.96 * differences.std() / 20
    expected = (differences.mean() - half, differences.mean() + half)
    assert task.compute_drop_interval(*statistics) == pytest.approx(expected, abs=half / 2)


@each_recall
def test_measure_undefined_replicates_are_skipped(measure: Any):
    task = adapt(measure=measure)
    statistics = statistics_of(task, np.ones((100, 1)), is_positive=np.arange(100) < 2)
    assert 0 < np.isnan(statistics[:, 0]).sum() < 25
    assert task.compute_metric(statistics, "test").value == 1.0
    assert task.compute_drop_interval(statistics, statistics) == (0.0, 0.0)


@each_recall
def test_measure_undefined_on_all_samples_raises_input_error(measure: Any):
    with pytest.raises(InputError) as caught:
        statistics_of(adapt(measure=measure), np.ones((9, 1)), is_positive=np.zeros(9))
    assert re.search(r"\bcompute\b.*\bSimpleNamespace\b", caught.value.message)


@each_recall
def test_check_functions_accepts_an_undefined_metric(measure: Any):
    adapt(measure=measure).check_functions([torch.ones(2, 1)], TWO_SAMPLES)


def test_check_functions_failing_metric_raises_task_failed():
    class Broken(Recall):
        def compute(self) -> float:
            return self.fuond / self.present  # type: ignore[attr-defined]

    with pytest.raises(TaskFailed) as caught:
        adapt(measure=Broken).check_functions([torch.ones(2, 1)], TWO_SAMPLES)
    assert "AttributeError" in caught.value.message


def test_missing_parts_are_those_of_distillation():
    task = adapt()
    assert (task.is_distilled, task.is_relative) == (True, True)
    assert task.metric == DISTILLATION.metric
    complete = adapt(loss=len, score=len)
    assert (complete.is_distilled, complete.is_relative) == (False, False)
    assert complete.metric.name == "score"
