"""The order of the stages."""

from types import SimpleNamespace

from ltp_pipeline import runner


class Planned:
    """A reporter that takes note of the plan."""

    def plan(self, steps: dict[str, int], search: bool = False) -> None:
        self.found = (steps, search)


def test_a_plan_is_in_steps_and_leaves_out_what_is_not_trained():
    reporter = Planned()
    training = SimpleNamespace(steps_per_epoch=10, workspace=SimpleNamespace(progress=reporter))
    runner.plan(training, {"finetune": 6, "baseline": 0}, search=True)
    assert reporter.found == ({"finetune": 60}, True)
