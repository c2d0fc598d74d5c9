"""How long thresholds are learned, how many weights are kept meanwhile, and how wide the gate is.

All three follow from the compression that is asked for. Where little is to be pruned, what the network has learned is
worth more than what training could still find: learning begins at the target, with a gate so narrow that the weights
kept stay as they are, and ends soon. Where much is to be pruned, weights need time to take over from others: the count
falls slowly, under a wide gate. docs/method.md has the equations and what was measured.
"""

import math
from dataclasses import dataclass
from typing import Self

MILD, STRONG = 4.0, 15.0  # compressions up to which a budget is mild, and from which it is strong
NARROWEST = 0.01  # width of the gate for a mild budget; for a strong one it is 1
NARROW = 0.1  # and this at the end, for kernels without a norm
FEWEST_EPOCHS, FEWEST_STEPS = 18, 750  # of training in all, by default


def strength(compression: float) -> float:
    """m, from 0 for a mild budget to 1 for a strong one, linear in log compression between. (R5)."""
    return min(max(math.log(compression / MILD) / math.log(STRONG / MILD), 0.0), 1.0)


def gate_width(compression: float) -> float:
    """c = 0.01^(1 - m). (R5)."""
    return float(NARROWEST ** (1 - strength(compression)))


def default_epochs(steps_per_epoch: int, compression: float | None) -> tuple[int, int]:
    """Epochs of learning and of fine-tuning; few samples need more of them. Learning has a share of (1 + 3m) / 6. (R5).

    Without a target, in a search, thresholds must have the time to go far.
    """
    epochs = max(FEWEST_EPOCHS, math.ceil(FEWEST_STEPS / steps_per_epoch))
    m = 1.0 if compression is None else strength(compression)
    learning = round(epochs * (1 + 3 * m) / 6)
    return learning, epochs - learning


@dataclass(frozen=True)
class Schedule:
    """Counts of weights: of all, of those kept at first and at last; `search` if any on the way may be the result."""

    total: int
    first: int
    last: int
    search: bool = False

    @classmethod
    def towards(cls, total: int, present: int, count: int) -> Self:
        """To a target of `count`: from compression^(1 - m/2), or from what there is where that is less. (R5)."""
        compression = total / count
        first = round(total / compression ** (1 - strength(compression) / 2))
        return cls(total, min(max(first, count), present), count)

    def count(self, share: float) -> int:
        """Weights kept when this share of learning is done: a cubic from the first count down to the last."""
        return self.last + round((self.first - self.last) * (1 - min(share, 1.0)) ** 3)

    def width(self, share: float, norm: bool = True) -> float:
        """The width c of a kernel's gate when this share of learning is done.

        In a search, each network on the way may be the result: there the width is that of the compression just reached.
        For a kernel without a norm behind it the width falls geometrically to NARROW.
        """
        width = gate_width(self.total / (self.count(share) if self.search else self.last))
        return width if norm else float(width ** (1 - share) * min(width, NARROW) ** share)
