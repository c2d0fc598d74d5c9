"""Time several computations in turns, so that all of them see the same machine."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

ROUNDS = 15  # smallest number of rounds, unless they take too long
MIN_ROUNDS = 3
MAX_SECONDS = 10.0  # no further round starts after this time, once MIN_ROUNDS are done


class Timing(NamedTuple):
    """Time of one call.

    Attributes:
        ms: Median in milliseconds.
        quartiles: Range of the middle half of the rounds, in milliseconds.
        rounds: Time of each round, in milliseconds.
    """

    ms: float
    quartiles: tuple[float, float]
    rounds: tuple[float, ...] = ()

    def compute_ratio_quartiles(self, other: "Timing") -> tuple[float, float]:
        """Return the range of the middle half of the ratios to another call, round by round."""
        ratios = np.divide(self.rounds, np.maximum(other.rounds, 1e-6))
        low, high = np.percentile(ratios, [25, 75]).tolist()
        return low, high


def time_interleaved(
    calls: Sequence[Callable[[], object]],
    seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Timing]:
    """Time several calls in turns.

    In its turn, each call runs twice and the second one is timed: the first finds in the cache what
    the other calls left there. A first run of each call is not counted.

    Args:
        calls: The calls.
        seconds: Smallest total time.
        clock: Returns the time in seconds.

    Returns:
        The time of each call.
    """
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    begun = time.perf_counter()
    while True:
        done, passed = len(times[0]), time.perf_counter() - begun
        if (done >= ROUNDS and passed >= seconds) or (done >= MIN_ROUNDS and passed > MAX_SECONDS):
            break
        for call, durations in zip(calls, times, strict=True):
            call()
            start = clock()
            call()
            durations.append(1000 * (clock() - start))
    low, middle, high = np.percentile(times, [25, 50, 75], axis=1).tolist()
    return [
        Timing(m, (a, b), tuple(rounds))
        for a, m, b, rounds in zip(low, middle, high, times, strict=True)
    ]
