"""Steps that become much slower than the first ones: other work has come to the cores, and there is something to do."""

from collections import deque
from collections.abc import Callable
from statistics import median

from ltp_pipeline.system import threads

FIRST, RECENT = 10, 10  # steps whose medians are compared
SLOWER = 3.0


class SlowdownMonitor:
    """Compares the steps of a phase with its first ones; speaks once."""

    def __init__(self) -> None:
        self.said = False
        self.seen = 0
        self.first: list[float] = []
        self.recent: deque[float] = deque(maxlen=RECENT)

    def record_step(self, seconds: float, say: Callable[[str], None]) -> None:
        """Take note of one step; say so when the last ones were much slower."""
        self.seen += 1
        if self.said:
            return
        if len(self.first) < FIRST:
            self.first.append(seconds)
            return
        self.recent.append(seconds)
        if len(self.recent) < RECENT or self.seen % RECENT:
            return
        before, now = median(self.first), median(self.recent)
        if now > SLOWER * before:
            self.said = True
            fewer = (
                " and start the same command with --threads 1"
                if threads.current() > 1
                else "; go on later"
            )
            say(
                f"Note: a step takes {now / before:.0f} times as long as at first ({1000 * now:.0f} ms, "
                f"{1000 * before:.0f} ms at first): other work is on these cores, or their quota is spent. "
                f"Wait for it to end, or stop (what is done is kept){fewer}"
            )
