"""Pictures of the report, from the report and the log."""

from typing import Any

import pytest

from ltp_pipeline.stages.report import plots
from tests.support.sample_report import in_celsius, report_of, sample


@pytest.mark.parametrize(
    "log", [[], [{"stage": "learn", "step": 0, "loss": 1.0}], [{"stage": "other"}]]
)
def test_too_short_a_log_gives_no_curve(log: list[dict[str, Any]]) -> None:
    assert plots.training(log) is None
    assert plots.thresholds(log) is None


def test_steps_done_again_count_once() -> None:
    _, log = sample()
    lines = [x for x in log if x["stage"] == "learn"]
    assert plots.training(lines) == plots.training([*lines[:40], *lines[20:]])


def test_the_fine_tuning_that_counts_is_the_last() -> None:
    _, log = sample()
    earlier = [
        x | {"stage": "finetune-003", "loss": 9.0} for x in log if x["stage"] == "finetune-007"
    ]
    assert plots.training([*earlier, *log]) == plots.training(log)
    assert "fine-tuning" in str(plots.training(log))


def test_the_trail_of_a_metric_that_is_no_share_is_drawn_in_its_unit() -> None:
    picture = str(plots.trail(report_of(in_celsius())))
    assert "MAE, °C (lower is better)" in picture
    assert 'aria-label="MAE against compression along the trail"' in picture
    assert ">2.60" in picture
