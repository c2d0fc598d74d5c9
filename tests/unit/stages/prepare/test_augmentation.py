"""The augmentation that is chosen by the accuracy of the original."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ltp_pipeline.data.open import open_data
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages.prepare.augmentation import (
    apply_augmentation,
    explain_no_images,
    list_notes,
)
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.protocol import TaskOutput

SCORES = TaskOutput(0, "scores", "scores")
SIZE = 16


def compare_halves(axis: int) -> Any:
    """Return a network whose class is the brighter half of an image along an axis."""

    def forward(inputs: Any, state: Any) -> list[torch.Tensor]:
        halves = inputs["x"].split(SIZE // 2, axis)
        return [torch.stack([half.mean((1, 2, 3)) for half in halves], 1)]

    return SimpleNamespace(forward=forward)


def make_context(
    folder: Path, axis: int = 2, val_errors: float = 0.3, size: int = SIZE, **data: Any
) -> RunContext:
    """Return a context whose original is correct on all training samples."""
    labels = np.arange(200) % 2
    shape = (200, 1, size, size)
    is_first = (np.arange(size) < size // 2)[None, None, :, None]
    if axis == 3:
        is_first = is_first.swapaxes(2, 3)
    images = np.broadcast_to(np.where(is_first, 1, 0) ^ labels[:, None, None, None], shape)
    is_wrong = np.arange(200) < round(200 * val_errors)
    arrays = {"x_train": images, "y_train": labels, "x_val": images, "y_val": labels ^ is_wrong}
    np.savez(folder / "d.npz", **{name: array.astype(np.uint8) for name, array in arrays.items()})
    values = {"path": folder / "d.npz", "augment": "auto", **data}
    settings = Settings.model_validate({"data": values})
    info = TensorInfo("x", "FLOAT", ("N", 1, size, size))
    splits = open_data(settings.data, [info], 0)
    run_directory = RunDirectory(folder / "run")
    run_directory.begin_run({})
    task = ClassificationTask(SCORES, num_classes=2)
    network = compare_halves(axis)
    return RunContext(network, task, splits, settings, run_directory, torch.device("cpu"))


def get_moves(context: RunContext) -> tuple[str, ...]:
    return context.data.train.inputs["x"].moves


@pytest.mark.parametrize(
    ("axis", "val_errors", "expected"),
    [
        (2, 0.3, ("flip", "shift")),
        (3, 0.3, ("shift",)),  # a flipped image has the other class
        (2, 0.05, ()),
        (2, 0.0, ()),
    ],
)
def test_apply_augmentation_follows_gap_and_flips(
    tmp_path: Path, axis: int, val_errors: float, expected: tuple[str, ...]
) -> None:
    context = make_context(tmp_path, axis, val_errors)
    assert get_moves(apply_augmentation(context, {})) == expected
    info = context.run_directory.manifest.augmentation
    assert info is not None
    assert info.gap == pytest.approx(val_errors)
    assert (info.flip_drop == 0) == (axis == 2)
    assert list_notes(context) == [info.reason]


def test_apply_augmentation_changes_training_samples_only(tmp_path: Path) -> None:
    context = apply_augmentation(make_context(tmp_path), {})
    rows = np.arange(20)
    data = context.data
    assert not np.array_equal(
        data.train.read(rows, 1).inputs["x"], data.train.read(rows).inputs["x"]
    )
    np.testing.assert_array_equal(
        data.val.read(rows, 1).inputs["x"], data.val.read(rows).inputs["x"]
    )


def test_apply_augmentation_of_a_resumed_run_does_not_measure(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    chosen = get_moves(apply_augmentation(context, {}))
    absent: Any = None
    resumed = replace(context, network=absent, run_directory=RunDirectory(tmp_path / "run"))
    assert get_moves(apply_augmentation(resumed, {})) == chosen


@pytest.mark.parametrize(("augment", "expected"), [(False, ()), (True, ("flip", "shift"))])
def test_apply_augmentation_respects_a_set_value(
    tmp_path: Path, augment: bool, expected: tuple[str, ...]
) -> None:
    context = make_context(tmp_path, augment=augment)
    assert get_moves(apply_augmentation(context, {})) == expected
    assert context.run_directory.manifest.augmentation is None
    assert not list_notes(context)


def test_explain_no_images_names_samples_that_are_not_augmented(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    assert explain_no_images(context) is None
    assert explain_no_images(replace(context, task=DistillationTask((SCORES,)))) is not None
    small = make_context(tmp_path, size=8)
    assert "16" in str(explain_no_images(small))
    assert get_moves(apply_augmentation(small, {})) == ()
