"""Notice training steps that become much slower than the first ones, and tell the user why."""

from collections import deque
from collections.abc import Callable
from statistics import median

from ltp_pipeline.system import threads

COMPARED_STEPS = 10  # steps whose median times are compared
SLOWDOWN = 3.0  # ratio of the medians that is reported


class SlowdownMonitor:
    """Compares recent steps of a phase with its first ones and reports a slowdown once."""

    def __init__(self) -> None:
        self.has_reported = False
        self.num_steps = 0
        self.first: list[float] = []
        self.recent: deque[float] = deque(maxlen=COMPARED_STEPS)

    def record_step(self, seconds: float, say: Callable[[str], None]) -> None:
        """Record the time of one step and report if the recent steps are much slower.

        Args:
            seconds: Duration of the step.
            say: Shows a line to the user.
        """
        self.num_steps += 1
        if self.has_reported:
            return
        if len(self.first) < COMPARED_STEPS:
            self.first.append(seconds)
            return
        self.recent.append(seconds)
        if len(self.recent) < COMPARED_STEPS or self.num_steps % COMPARED_STEPS:
            return
        first = median(self.first)
        recent = median(self.recent)
        if recent > SLOWDOWN * first:
            self.has_reported = True
            say(_describe_slowdown(first, recent))


def _describe_slowdown(first: float, recent: float) -> str:
    """Return the note to the user, for median step times in seconds."""
    advice = "and start the same command with --threads 1"
    if threads.current_threads() == 1:
        advice = "and resume later"
    return (
        f"Note: a step now takes {recent / first:.0f} times as long as at first "
        f"({1000 * recent:.0f} ms, {1000 * first:.0f} ms at first). Other work uses these cores, "
        "or their quota is spent. Wait until it ends, or stop (what is done is saved) "
        f"{advice}"
    )
