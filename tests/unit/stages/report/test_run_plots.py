"""Plots of file sizes and of the training, from the report and the log."""

from typing import Any

import pytest

from ltp_pipeline.stages.report import run_plots
from tests.support.sample_report import report_of, sample


def test_plot_sizes_without_sizes_gives_none() -> None:
    assert run_plots.plot_sizes(report_of({"sizes": {"raw_values_bound": 7}})) is None


def test_plot_sizes_shows_each_file_and_the_bound() -> None:
    sizes = {"original": 2000, "packed": 500, "raw_values_bound": 400}
    plot = str(run_plots.plot_sizes(report_of({"sizes": sizes})))
    for label in ("2 kB (100 %)", "500 B (25 %)", "bound of raw values: 400 B"):
        assert label in plot


@pytest.mark.parametrize(
    "log", [[], [{"stage": "learn", "step": 0, "loss": 1.0}], [{"stage": "other"}]]
)
def test_plot_log_too_short_gives_none(log: list[dict[str, Any]]) -> None:
    assert run_plots.plot_training(log) is None
    assert run_plots.plot_thresholds(log) is None


def test_plot_training_repeated_steps_count_once() -> None:
    _, log = sample()
    lines = [line for line in log if line["stage"] == "learn"]
    assert run_plots.plot_training([*lines[:40], *lines[20:]]) == run_plots.plot_training(lines)


def test_plot_training_takes_the_last_fine_tuning() -> None:
    _, log = sample()
    last = [line for line in log if line["stage"] == "finetune-007"]
    earlier = [line | {"stage": "finetune-003", "loss": 9.0} for line in last]
    assert run_plots.plot_training([*earlier, *log]) == run_plots.plot_training(log)
    assert "fine-tuning" in str(run_plots.plot_training(log))


def test_plot_training_continues_gradual_pruning_with_its_fine_tuning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[list[int]] = []
    average = run_plots._average_lines

    def note_steps(lines: Any, key: str) -> Any:
        steps.append([line["step"] for line in lines])
        return average(lines, key)

    monkeypatch.setattr(run_plots, "_average_lines", note_steps)
    log = [
        {"stage": stage, "step": step, "loss": 1.0}
        for stage in ("gradual", "gradual-finetune")
        for step in (0, 5)
    ]
    drawing = str(run_plots.plot_training(log))
    assert steps == [[0, 5], [0, 5]]
    assert drawing.count("gradual magnitude") == 1
