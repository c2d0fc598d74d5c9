"""The log as TensorBoard reads it."""

import sys
from pathlib import Path

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.run_directory.tensorboard_log import TensorBoardLog, iter_numbers

LINE = {
    "stage": "learn",
    "key": "learn",
    "epoch": 0,
    "step": 7,
    "loss": 0.5,
    "thresholds": {"conv": 0.25},
}


def test_tensorboard_log_names_every_number():
    assert dict(iter_numbers(LINE)) == {"loss": 0.5, "thresholds/conv": 0.25}


def test_tensorboard_log_is_read_by_tensorboard(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_directory = RunDirectory(tmp_path, events=True)
    run_directory.append_log(LINE)
    events = EventAccumulator(str(tmp_path / "tensorboard" / "learn")).Reload()
    assert sorted(events.Tags()["scalars"]) == ["loss", "thresholds/conv"]
    event = events.Scalars("loss")[0]
    assert (event.step, event.value) == (7, 0.5)


def test_tensorboard_log_repeated_steps_are_shown_once(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps in (
        range(5),
        range(3, 6),
    ):  # interrupted after step 4, gone on from a checkpoint before step 3
        run_directory = RunDirectory(tmp_path, events=True)
        for step in steps:
            run_directory.append_log({**LINE, "step": step})
    events = EventAccumulator(str(tmp_path / "tensorboard" / "learn")).Reload()
    assert [e.step for e in events.Scalars("loss")] == [0, 1, 2, 3, 4, 5]


def test_tensorboard_log_not_installed_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(InputError) as error:
        TensorBoardLog(tmp_path)
    assert "ltp-pipeline[tensorboard]" in error.value.hint
