"""What a user is told before training, and in the report, when the outcome is in doubt."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.graph.layer_weights import LayerWeight
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages.prepare.notes import (
    describe_blocks,
    describe_budget,
    describe_epochs,
    describe_loss,
    describe_metric,
    describe_optimizer,
    warn_of_weak_result,
)
from ltp_pipeline.stages.train.job import ResolvedDefaults, RunContext
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.protocol import TaskOutput
from tests.support.samples import split_of


def job(samples: int = 10_000, labels: Any = (0, 1, 2, 3), **settings: Any) -> Any:
    val = split_of(
        np.zeros((len(labels or (0,)), 1)), None if labels is None else np.array(labels), "val"
    )
    data: Any = SimpleNamespace(train=range(samples), val=val)
    absent: Any = None
    task = ClassificationTask(TaskOutput(0, "scores", "scores"), num_classes=4)
    return RunContext(
        absent, task, data, Settings.model_validate({"train": settings}), absent, absent
    )


@pytest.mark.parametrize(
    ("accuracy", "labels", "doubtful"),
    [
        (0.30, (0, 1, 2, 3), True),
        (0.40, (0, 1, 2, 3), False),
        (0.76, (0, 0, 0, 1), True),
    ],
)
def test_an_original_that_is_hardly_better_than_chance(
    accuracy: float, labels: Any, doubtful: bool
) -> None:
    told = warn_of_weak_result(job(labels=labels), accuracy)
    assert bool(told) == doubtful
    assert all("check scale, mean, std and layout" in note for note in told)


def test_describe_loss_names_the_weight_of_distillation_next_to_labels() -> None:
    context = job()
    assert not describe_loss(context)
    (note,) = describe_loss(replace(context, task=context.task.with_distillation(0.5)))
    assert "50%" in note


def test_describe_loss_without_labels_is_empty() -> None:
    task = DistillationTask((TaskOutput(0, "scores", "scores"),))
    assert not describe_loss(replace(job(), task=task))


def test_adamw_is_told_with_its_rate() -> None:
    network: Any = SimpleNamespace(file=SimpleNamespace(model=None))
    task: Any = SimpleNamespace(has_unbounded_gradient=False)
    (told,) = describe_optimizer(
        replace(job(optimizer="adamw", lr=3e-4), network=network, task=task)
    )
    assert "learning rate of 0.0003, which rises over the first 6% of the steps" in told
    assert not describe_optimizer(replace(job(optimizer="sgd"), network=network, task=task))


def test_few_steps() -> None:
    (told,) = warn_of_weak_result(job(1_100, epochs=6), 0.9)
    assert "only 48 steps" in told
    assert not warn_of_weak_result(job(1_100, epochs=6, batch_size=32), 0.9)


def test_one_step_is_not_called_several() -> None:
    (told,) = warn_of_weak_result(job(100, epochs=1), 0.9)
    assert "in only 1 step:" in told


@pytest.mark.parametrize(
    ("samples", "given", "expected"),
    [
        (60_000, {}, (12, 6)),  # 468 steps an epoch
        (5_000, {}, (13, 7)),  # 39 steps an epoch
        (512, {}, (125, 63)),
        (100, {}, (500, 250)),  # less than a batch is one step
        (512, {"batch_size": 32}, (31, 16)),
        (512, {"epochs": 3}, (3, 2)),
        (512, {"finetune_epochs": 0}, (125, 0)),
        (512, {"epochs": 3, "finetune_epochs": 9}, (3, 9)),
    ],
)
def test_few_samples_get_more_epochs_and_a_number_given_is_obeyed(
    samples: int, given: dict[str, int], expected: tuple[int, int]
) -> None:
    found = job(samples, **given)
    assert (found.epochs, found.finetune_epochs) == expected


@pytest.mark.parametrize(
    ("aggressiveness", "expected"),
    [(0.0, (1, 17)), (0.01, (3, 15)), (0.5, (8, 10)), (1.0, (12, 6))],
)
def test_thresholds_are_learned_for_less_time_where_the_budget_is_mild(
    aggressiveness: float, expected: tuple[int, int]
) -> None:
    found = replace(job(60_000), resolved=ResolvedDefaults(aggressiveness=aggressiveness))
    assert (found.epochs, found.finetune_epochs) == expected


def test_how_long_training_takes_is_told_where_nothing_was_said_of_it() -> None:
    (told,) = describe_epochs(job(512))
    assert (
        "learned for 125 and the result is fine-tuned for 63 epochs of 4 steps, because 512 samples"
        in told
    )
    (told,) = describe_epochs(job(60_000))
    assert "because" not in told
    assert not describe_epochs(job(512, epochs=125))


ERROR = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)


@pytest.mark.parametrize(
    ("metric", "told"), [(Metric(), []), (ERROR, ["the metric is MAE in °C, lower is better"])]
)
def test_a_metric_other_than_right_answers_is_told_with_its_unit(
    metric: Metric, told: list[str]
) -> None:
    task: Any = SimpleNamespace(metric=metric, is_relative=False)
    assert [note.partition(";")[0] for note in describe_metric(replace(job(), task=task))] == told


@pytest.mark.parametrize(
    ("metric", "kept", "told"), [(ERROR, 0.025, 1), (ERROR, None, 0), (Metric(), 0.01, 0)]
)
def test_a_budget_that_follows_from_the_original_is_told(
    metric: Metric, kept: float | None, told: int
) -> None:
    task: Any = SimpleNamespace(metric=metric)
    resolved = ResolvedDefaults(accuracy_budget=kept)
    found = describe_budget(replace(job(), task=task, resolved=resolved))
    assert len(found) == told
    assert all(
        "the budget is a drop of 0.025 °C, 1 % of the original's MAE" in note for note in found
    )


def in_blocks(block: str | None, single: int) -> list[str]:
    named = [LayerWeight(f"single{i}", "Conv", (3, 2)) for i in range(single)]
    kernels = (LayerWeight("a", "Conv", (4, 2), block_axis=0), *named)
    network: Any = SimpleNamespace(layer_weights=kernels, prunable_weights=kernels)
    return describe_blocks(
        replace(
            job(), network=network, settings=Settings.model_validate({"method": {"block": block}})
        )
    )


def test_kernels_that_keep_single_weights_beside_blocks_are_named() -> None:
    assert in_blocks(None, 2) == []
    assert in_blocks("4x1", 0) == ["1 of 1 kernels are pruned in 4x1 blocks"]
    (told,) = in_blocks("4x1", 2)
    assert told.startswith(
        "1 of 3 kernels are pruned in 4x1 blocks; single weights in 'single0', 'single1': "
    )
    (told,) = in_blocks("4x1", 12)
    assert "'single9' and 2 more: " in told
