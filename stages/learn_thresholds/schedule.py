"""How many weights are kept while thresholds are learned, and how wide the gate is.

Both follow from how much the budget asks of the network. Where a network that is simply cut to size still works,
what it has learned is worth more than what training could still find: learning begins at the target, with a gate so
narrow that the weights kept stay as they are, and ends soon. Where it does not, weights need time to take over from
others: the count falls slowly, under a wide gate. docs/method.md has the equations and what was measured.
"""

import math
from dataclasses import dataclass
from typing import Self

MILD_RETENTION, STRONG_RETENTION = (
    0.9,
    0.4,
)  # shares of its accuracy that a network keeps, cut to size: mild, strong
MILD_COMPRESSION, STRONG_COMPRESSION = (
    4.0,
    15.0,
)  # compressions that stand for them in a search; a target of STRONG is always strong
MIN_GATE_WIDTH = 0.01  # width of the gate for a mild budget; for a strong one it is 1
FINAL_GATE_WIDTH = 0.1  # and this at the end, for kernels without a norm


def aggressiveness_of_retention(kept: float) -> float:
    """m = (0.9 - q) / 0.5, from 0 for a mild budget to 1 for a strong one; q is the share of accuracy `kept`. (R5)."""
    return min(max((MILD_RETENTION - kept) / (MILD_RETENTION - STRONG_RETENTION), 0.0), 1.0)


def aggressiveness_of_compression(compression: float) -> float:
    """m for a compression that is met on the way, linear in its logarithm. (R5)."""
    return min(
        max(
            math.log(compression / MILD_COMPRESSION)
            / math.log(STRONG_COMPRESSION / MILD_COMPRESSION),
            0.0,
        ),
        1.0,
    )


def gate_width(m: float) -> float:
    """c = 0.01^(1 - m). (R5)."""
    return float(MIN_GATE_WIDTH ** (1 - m))


@dataclass(frozen=True)
class PruningSchedule:
    """Counts of weights, of all and of those kept at first and at last; the strength m, None for a search."""

    total: int
    first: int
    last: int
    m: float | None = None

    @classmethod
    def to_target(cls, total: int, present: int, count: int, m: float) -> Self:
        """To a target of `count`: from compression^(1 - m/2), or from what there is where that is less. (R5)."""
        first = round(total / (total / count) ** (1 - m / 2))
        return cls(total, min(max(first, count), present), count, m)

    def count_at(self, share: float) -> int:
        """Weights kept when this share of learning is done: a cubic from the first count down to the last."""
        return self.last + round((self.first - self.last) * (1 - min(share, 1.0)) ** 3)

    def gate_width_at(self, share: float, norm: bool = True) -> float:
        """The width c of a kernel's gate when this share of learning is done.

        In a search, each network on the way may be the result: there the width is that of the compression just reached.
        For a kernel without a norm behind it the width falls geometrically to NARROW.
        """
        width = gate_width(
            aggressiveness_of_compression(self.total / self.count_at(share))
            if self.m is None
            else self.m
        )
        return (
            width if norm else float(width ** (1 - share) * min(width, FINAL_GATE_WIDTH) ** share)
        )
