"""The order of the stages."""

from types import SimpleNamespace

import pytest

from ltp_pipeline.runner import run as runner
from ltp_pipeline.settings.schema import BaselineMode, BaselineSettings, Settings


class Planned:
    """A reporter that takes note of the plan."""

    def plan(self, steps: dict[str, int], open_ended: set[str]) -> None:
        self.found = (steps, open_ended)


def test_plan_counts_steps_of_trained_phases():
    reporter = Planned()
    settings = Settings(baseline=BaselineSettings(mode="quick"))
    training = SimpleNamespace(
        steps_per_epoch=10, run_directory=SimpleNamespace(progress=reporter), settings=settings
    )
    runner.announce_plan(training, {"finetune": 6, "baseline": 0}, ("finetune",))
    assert reporter.found == ({"finetune": 60}, {"finetune"})


@pytest.mark.parametrize("mode", ["auto", "curve"])
def test_plan_with_a_curve_has_no_end(mode: BaselineMode):
    reporter = Planned()
    settings = Settings(baseline=BaselineSettings(mode=mode))
    training = SimpleNamespace(
        steps_per_epoch=10, run_directory=SimpleNamespace(progress=reporter), settings=settings
    )
    runner.announce_plan(training, {"learn": 6})
    assert reporter.found == ({"learn": 60}, {"learn", "finetune", "baseline", "curve"})
