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


def test_every_number_of_a_line_has_a_name_and_its_place_has_none():
    assert dict(iter_numbers(LINE)) == {"loss": 0.5, "thresholds/conv": 0.25}


def test_a_line_of_the_log_is_read_back_by_tensorboard(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_directory = RunDirectory(tmp_path, events=True)
    run_directory.append_log(LINE)
    found = EventAccumulator(str(tmp_path / "tensorboard" / "learn")).Reload()
    assert sorted(found.Tags()["scalars"]) == ["loss", "thresholds/conv"]
    event = found.Scalars("loss")[0]
    assert (event.step, event.value) == (7, 0.5)


def test_steps_that_are_done_again_are_shown_once(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps in (
        range(5),
        range(3, 6),
    ):  # interrupted after step 4, gone on from a checkpoint before step 3
        run_directory = RunDirectory(tmp_path, events=True)
        for step in steps:
            run_directory.append_log({**LINE, "step": step})
    found = EventAccumulator(str(tmp_path / "tensorboard" / "learn")).Reload()
    assert [e.step for e in found.Scalars("loss")] == [0, 1, 2, 3, 4, 5]


def test_without_tensorboard_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(InputError) as error:
        TensorBoardLog(tmp_path)
    assert "ltp-pipeline[tensorboard]" in error.value.hint
