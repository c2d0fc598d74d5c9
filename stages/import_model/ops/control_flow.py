"""If, Loop and Scan. A branch is a function of the inputs of its graph."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.registry import op

Branch = Callable[..., tuple[Any, ...]]
MOST_ROUNDS = 1 << 16  # an endless loop in a file must end


@op("If", constants=(0,))
def if_(cond: Tensor, *, else_branch: Branch, then_branch: Branch) -> tuple[Any, ...]:
    return then_branch() if bool(cond) else else_branch()


@op("Loop", constants=(0, 1))
def loop(
    trip_count: Tensor | None = None,
    cond: Tensor | None = None,
    *initial: Any,
    body: Branch,
    n_outputs: int = 1,
) -> tuple[Any, ...]:
    state = list(initial)
    limit = MOST_ROUNDS + 1 if trip_count is None else int(trip_count)
    going = cond is None or bool(cond)
    collected: list[list[Tensor]] = [[] for _ in range(n_outputs - len(state))]
    rounds = 0
    while going and rounds < limit:
        if rounds >= MOST_ROUNDS:
            raise ValueError(f"a loop of more than {MOST_ROUNDS:,} rounds is beyond reason")
        again, *results = body(torch.tensor(rounds), torch.tensor(going), *state)
        state = results[: len(state)]
        for scanned, value in zip(collected, results[len(state) :], strict=True):
            scanned.append(value)
        going = bool(again)
        rounds += 1
    return (*state, *(torch.stack(c) if c else torch.empty(0) for c in collected))


@op("Scan", since=8)
def scan_8(
    sequence_lens: Tensor | None,
    *values: Tensor,
    body: Branch,
    directions: Sequence[int] = (),
    num_scan_inputs: int,
) -> tuple[Any, ...]:
    if sequence_lens is not None:
        raise ValueError("sequence_lens is not supported")
    batches = [
        _run_scan(
            [v[i] for v in values],
            body,
            num_scan_inputs,
            [0] * num_scan_inputs,
            list(directions),
            [],
            [],
        )
        for i in range(values[0].shape[0])
    ]
    return tuple(torch.stack(results) for results in zip(*batches, strict=True))


@op("Scan", since=9)
def scan_9(
    *values: Tensor,
    body: Branch,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (),
    scan_output_axes: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
) -> tuple[Any, ...]:
    axes = list(scan_input_axes) or [0] * num_scan_inputs
    into, out = list(scan_input_directions), list(scan_output_directions)
    return _run_scan(list(values), body, num_scan_inputs, axes, into, list(scan_output_axes), out)


def _run_scan(
    values: list[Tensor],
    body: Branch,
    n: int,
    axes: list[int],
    directions: list[int],
    output_axes: list[int],
    output_directions: list[int],
) -> tuple[Any, ...]:
    state, scanned = values[: len(values) - n], values[len(values) - n :]
    backwards = directions or [0] * n
    sequences = [
        (x.flip(axis) if back else x).unbind(axis)
        for x, axis, back in zip(scanned, axes, backwards, strict=True)
    ]
    collected: list[list[Tensor]] = []
    for items in zip(*sequences, strict=True):
        results = body(*state, *items)
        state = list(results[: len(state)])
        collected = collected or [[] for _ in results[len(state) :]]
        for outputs, value in zip(collected, results[len(state) :], strict=True):
            outputs.append(value)
    stacked = []
    for i, outputs in enumerate(collected):
        if output_directions and output_directions[i]:
            outputs.reverse()
        stacked.append(torch.stack(outputs, output_axes[i] if output_axes else 0))
    return (*state, *stacked)
