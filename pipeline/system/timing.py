"""Several computations timed in turns, so that all see the same machine."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

ROUNDS = 15
FEWEST_ROUNDS = 3
MOST_SECONDS = 10.0  # after which no round is begun, once there are the fewest


class Timing(NamedTuple):
    """Milliseconds of one call: the median, and between which values the middle half of the rounds lay."""

    ms: float
    quartiles: tuple[float, float]


def time_interleaved(
    calls: Sequence[Callable[[], object]],
    rounds: int = ROUNDS,
    seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Timing]:
    """Time each call so many times, or more until these seconds are over; a first call of each is not counted.

    Each is called twice in its turn and the second call timed, as the first finds what the others left in the cache.
    """
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    begun = time.perf_counter()
    while True:
        done, passed = len(times[0]), time.perf_counter() - begun
        if (done >= rounds and passed >= seconds) or (
            done >= FEWEST_ROUNDS and passed > MOST_SECONDS
        ):
            break
        for call, taken in zip(calls, times, strict=True):
            call()
            start = clock()
            call()
            taken.append(1000 * (clock() - start))
    low, middle, high = np.percentile(times, [25, 50, 75], axis=1).tolist()
    return [Timing(m, (a, b)) for a, m, b in zip(low, middle, high, strict=True)]
