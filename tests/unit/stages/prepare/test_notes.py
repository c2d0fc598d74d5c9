"""Notes before training and in the report, about what the user should know."""

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
from ltp_pipeline.stages.train.context import ResolvedDefaults, RunContext
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.protocol import TaskOutput
from tests.support.samples import split_of

ERROR = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)
SCORES = TaskOutput(0, "scores", "scores")


def context_of(num_samples: int = 10_000, labels: Any = (0, 1, 2, 3), **train: Any) -> Any:
    val = split_of(np.zeros((len(labels), 1)), np.array(labels), "val")
    data: Any = SimpleNamespace(train=range(num_samples), val=val)
    absent: Any = None
    task = ClassificationTask(SCORES, num_classes=4)
    settings = Settings.model_validate({"train": train})
    return RunContext(absent, task, data, settings, absent, absent)


@pytest.mark.parametrize(
    ("accuracy", "labels", "is_doubtful"),
    [
        (0.30, (0, 1, 2, 3), True),
        (0.40, (0, 1, 2, 3), False),
        (0.76, (0, 0, 0, 1), True),
    ],
)
def test_warn_of_weak_result_near_chance_names_settings(
    accuracy: float, labels: Any, is_doubtful: bool
) -> None:
    notes = warn_of_weak_result(context_of(labels=labels), accuracy)
    assert bool(notes) == is_doubtful
    assert all("[data]" in note for note in notes)


def test_warn_of_weak_result_names_few_steps() -> None:
    (note,) = warn_of_weak_result(context_of(1_100, epochs=6), 0.9)
    assert "48 steps" in note
    assert not warn_of_weak_result(context_of(1_100, epochs=6, batch_size=32), 0.9)
    (note,) = warn_of_weak_result(context_of(100, epochs=1), 0.9)
    assert "1 step " in note


def test_warn_of_weak_result_of_few_steps_names_the_default() -> None:
    (note,) = warn_of_weak_result(context_of(512, epochs=1), 0.9)
    assert "752 steps" in note


def test_warn_of_weak_result_ignores_epochs_by_rule() -> None:
    fixed_masks = ResolvedDefaults(aggressiveness=0.0)
    assert not warn_of_weak_result(replace(context_of(512), resolved=fixed_masks), 0.9)


def test_describe_loss_names_the_weight_of_distillation_next_to_labels() -> None:
    context = context_of()
    assert not describe_loss(context)
    (note,) = describe_loss(replace(context, task=replace(context.task, distillation_weight=0.5)))
    assert "50%" in note


def test_describe_loss_without_labels_is_empty() -> None:
    assert not describe_loss(replace(context_of(), task=DistillationTask((SCORES,))))


def test_describe_optimizer_names_adamw_with_rate_and_warmup() -> None:
    network: Any = SimpleNamespace(file=SimpleNamespace(model=None))
    task: Any = SimpleNamespace(has_unbounded_gradient=False)
    adamw = replace(context_of(optimizer="adamw", lr=3e-4), network=network, task=task)
    (note,) = describe_optimizer(adamw)
    assert "0.0003" in note
    assert "6%" in note
    assert not describe_optimizer(replace(context_of(optimizer="sgd"), network=network, task=task))


@pytest.mark.parametrize(
    ("num_samples", "train", "expected"),
    [
        (60_000, {}, (12, 6)),  # 468 steps an epoch
        (5_000, {}, (13, 7)),  # 39 steps an epoch
        (512, {}, (125, 63)),
        (100, {}, (333, 167)),  # less than a batch is one step, and epochs have a limit
        (300, {}, (250, 125)),
        (512, {"batch_size": 32}, (31, 16)),
        (512, {"epochs": 3}, (3, 2)),
        (512, {"finetune_epochs": 0}, (125, 0)),
        (512, {"epochs": 3, "finetune_epochs": 9}, (3, 9)),
    ],
)
def test_epochs_grow_for_few_samples_unless_they_are_set(
    num_samples: int, train: dict[str, int], expected: tuple[int, int]
) -> None:
    context = context_of(num_samples, **train)
    assert (context.epochs, context.finetune_epochs) == expected


@pytest.mark.parametrize(
    ("aggressiveness", "expected"),
    [(0.0, (1, 17)), (0.01, (3, 15)), (0.5, (8, 10)), (1.0, (12, 6))],
)
def test_epochs_of_learning_grow_with_aggressiveness(
    aggressiveness: float, expected: tuple[int, int]
) -> None:
    resolved = ResolvedDefaults(aggressiveness=aggressiveness)
    context = replace(context_of(60_000), resolved=resolved)
    assert (context.epochs, context.finetune_epochs) == expected


def test_describe_epochs_names_numbers_that_were_left_open() -> None:
    (note,) = describe_epochs(context_of(512))
    assert [part for part in ("125", "63", "4 steps", "512 samples") if part not in note] == []
    (note,) = describe_epochs(context_of(60_000))
    assert "because" not in note
    assert not describe_epochs(context_of(512, epochs=125))


@pytest.mark.parametrize(("metric", "has_note"), [(Metric(), False), (ERROR, True)])
def test_describe_metric_other_than_top1_names_its_unit(metric: Metric, has_note: bool) -> None:
    task: Any = SimpleNamespace(metric=metric, is_relative=False)
    notes = describe_metric(replace(context_of(), task=task))
    assert bool(notes) == has_note
    assert all("MAE in °C" in note for note in notes)


@pytest.mark.parametrize(
    ("metric", "budget", "has_note"),
    [(ERROR, 0.025, True), (ERROR, None, False), (Metric(), 0.01, False)],
)
def test_describe_budget_names_a_default_that_depends_on_the_original(
    metric: Metric, budget: float | None, has_note: bool
) -> None:
    task: Any = SimpleNamespace(metric=metric)
    resolved = ResolvedDefaults(accuracy_budget=budget)
    notes = describe_budget(replace(context_of(), task=task, resolved=resolved))
    assert bool(notes) == has_note
    assert all("0.025 °C" in note for note in notes)


def notes_of_blocks(block: str | None, num_others: int) -> list[str]:
    others = [LayerWeight(f"other{i}", "Conv", (3, 2)) for i in range(num_others)]
    layers = (LayerWeight("a", "Conv", (4, 2), block_axis=0), *others)
    network: Any = SimpleNamespace(layer_weights=layers, prunable_weights=layers)
    settings = Settings.model_validate({"method": {"block": block}})
    return describe_blocks(replace(context_of(), network=network, settings=settings))


def test_describe_blocks_names_layers_without_blocks() -> None:
    assert notes_of_blocks(None, 2) == []
    (note,) = notes_of_blocks("4x1", 0)
    assert "1 of 1" in note
    (note,) = notes_of_blocks("4x1", 2)
    assert "1 of 3" in note
    assert "'other0', 'other1':" in note
    (note,) = notes_of_blocks("4x1", 12)
    assert "'other9' and 2 more:" in note
