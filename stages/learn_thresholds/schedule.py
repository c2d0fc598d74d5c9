"""How many weights are kept while thresholds are learned, and how wide the gate is. (R5).

Both follow from how much the budget asks of the network, its pruning aggressiveness m.

- A mild budget (m = 0): a network that is simply pruned in one shot still works. What it has
  learned is worth more than what training could still find. Learning begins at the target, with
  a gate so narrow that the kept weights stay as they are, and it ends soon.
- An aggressive budget (m = 1): weights need time to take over from others. The number of weights
  falls slowly, under a wide gate.

docs/explanation/method.md has the equations and the measurements.
"""

import math
from dataclasses import dataclass
from typing import Self

# Fractions of its accuracy that a network retains when it is pruned in one shot.
MILD_RETENTION = 0.9
STRONG_RETENTION = 0.4
# Compression ratios that stand for these in a search without a target. A target compression of at
# least STRONG_COMPRESSION is always treated as aggressive.
MILD_COMPRESSION = 4.0
STRONG_COMPRESSION = 15.0
MIN_GATE_WIDTH = 0.01  # width of the gate for a mild budget; for an aggressive one it is 1
FINAL_GATE_WIDTH = 0.1  # width at the end, for layers without a normalization layer behind them


def aggressiveness_of_retention(retention: float) -> float:
    """Return m = (0.9 - q) / 0.5, limited to the range from 0 (mild) to 1 (aggressive). (R5).

    Args:
        retention: q, the fraction of its accuracy that the network retains when it is pruned in
            one shot to the target.
    """
    m = (MILD_RETENTION - retention) / (MILD_RETENTION - STRONG_RETENTION)
    return min(max(m, 0.0), 1.0)


def aggressiveness_of_compression(compression: float) -> float:
    """Return m for a compression ratio met in a search, linear in its logarithm. (R5)."""
    m = math.log(compression / MILD_COMPRESSION) / math.log(STRONG_COMPRESSION / MILD_COMPRESSION)
    return min(max(m, 0.0), 1.0)


def gate_width(m: float) -> float:
    """Return c = 0.01^(1 - m). (R5)."""
    return float(MIN_GATE_WIDTH ** (1 - m))


@dataclass(frozen=True)
class PruningSchedule:
    """Number of kept weights and width of the gate as functions of progress.

    Attributes:
        total: Number of weights of the layers being pruned.
        first: Number of weights kept at the beginning.
        last: Number of weights kept at the end.
        m: Pruning aggressiveness; None for a search, where it follows the compression reached.
    """

    total: int
    first: int
    last: int
    m: float | None = None

    @classmethod
    def to_target(cls, total: int, present: int, count: int, m: float) -> Self:
        """Return the schedule that ends at `count` weights. (R5).

        It begins at compression^(1 - m/2), or at the `present` number of nonzeros if that is less.
        """
        first = round(total / (total / count) ** (1 - m / 2))
        return cls(total, min(max(first, count), present), count, m)

    def count_at(self, progress: float) -> int:
        """Return the number of weights kept: a cubic curve from the first to the last count."""
        return self.last + round((self.first - self.last) * (1 - min(progress, 1.0)) ** 3)

    def gate_width_at(self, progress: float, is_normalized: bool = True) -> float:
        """Return the width c of a layer's gate.

        In a search, each network on the way may be the result. There the width is that of the
        compression just reached.

        Args:
            progress: Completed fraction of the phase.
            is_normalized: Whether a normalization layer follows. Without one, the width falls
                geometrically to FINAL_GATE_WIDTH.
        """
        m = self.m
        if m is None:
            m = aggressiveness_of_compression(self.total / self.count_at(progress))
        width = gate_width(m)
        if is_normalized:
            return width
        return float(width ** (1 - progress) * min(width, FINAL_GATE_WIDTH) ** progress)
