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
    *state: Any,
    body: Branch,
    n_outputs: int = 1,
) -> tuple[Any, ...]:
    limit = MOST_ROUNDS + 1 if trip_count is None else int(trip_count)
    is_active = cond is None or bool(cond)
    num_states = len(state)
    rounds: list[Sequence[Tensor]] = []  # values to stack
    while is_active and len(rounds) < limit:
        if len(rounds) >= MOST_ROUNDS:
            raise ValueError(f"a loop of more than {MOST_ROUNDS:,} rounds is beyond reason")
        number = torch.tensor(len(rounds))
        again, *results = body(number, torch.tensor(is_active), *state)
        state = tuple(results[:num_states])
        rounds.append(results[num_states:])
        is_active = bool(again)
    if not rounds:
        return *state, *[torch.empty(0)] * (n_outputs - num_states)
    return *state, *(torch.stack(values) for values in zip(*rounds, strict=True))


@op("Scan")
def scan_8(
    sequence_lens: Tensor | None,
    *values: Tensor,
    body: Branch,
    directions: Sequence[int] = (),
    num_scan_inputs: int,
) -> tuple[Any, ...]:
    if sequence_lens is not None:
        raise ValueError("sequence_lens is not supported")
    batches = []
    for samples in zip(*values, strict=True):
        results = scan_9(
            *samples,
            body=body,
            num_scan_inputs=num_scan_inputs,
            scan_input_directions=directions,
        )
        batches.append(results)
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
    num_states = len(values) - num_scan_inputs
    state: Sequence[Any] = values[:num_states]
    axes = scan_input_axes or [0] * num_scan_inputs
    backwards = scan_input_directions or [0] * num_scan_inputs
    sequences = []
    scanned = zip(values[num_states:], axes, backwards, strict=True)
    for x, axis, is_backward in scanned:
        ordered = x.flip(axis) if is_backward else x
        sequences.append(ordered.unbind(axis))
    rounds = []
    for items in zip(*sequences, strict=True):
        results = body(*state, *items)
        state = results[:num_states]
        rounds.append(results[num_states:])
    stacked = []
    for i, values_by_round in enumerate(zip(*rounds, strict=True)):
        axis = scan_output_axes[i] if scan_output_axes else 0
        y = torch.stack(values_by_round, axis)
        if scan_output_directions and scan_output_directions[i]:
            y = y.flip(axis)
        stacked.append(y)
    return (*state, *stacked)
