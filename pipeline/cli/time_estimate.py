"""How long a whole run still takes: the training steps that are left, at the rate of those that were done."""

from collections.abc import Collection, Mapping

from ltp_pipeline.system.text import round_duration


class TimeEstimate:
    """The phases ahead; each is taken off when it begins."""

    def __init__(
        self, steps: Mapping[str, int] | None = None, open_ended: Collection[str] = ()
    ) -> None:
        self.ahead = dict(steps or {})
        self.open_ended = (
            open_ended  # phases in which nobody knows how many networks will still be trained
        )
        self.phase = ""

    def start_phase(self, phase: str) -> None:
        """A phase begins; it may be one that is done already, or another attempt."""
        self.phase = phase
        self.ahead.pop(phase, None)

    def format_remaining(self, per_step: float, left: int) -> str:
        """Time left of the run, in words; `left` are the steps of the phase at work, `per_step` its seconds a step."""
        least = self.phase in self.open_ended
        seconds = per_step * (left + sum(self.ahead.values()))
        return f"whole run {'at least' if least else 'about'} {round_duration(seconds)}"


def format_duration(seconds: float) -> str:
    """A duration to the second."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
