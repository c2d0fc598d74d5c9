"""RNN, GRU and LSTM.

The input is projected for all steps at once. Then a cell runs step by step.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.activations import (
    elu,
    hard_sigmoid,
    leaky_relu,
    thresholded_relu,
)
from ltp_pipeline.stages.import_model.ops.shaping import reverse_time
from ltp_pipeline.stages.import_model.registry import op

Activation = Callable[..., Tensor]
States = tuple[Tensor, ...]
# A function of the projected input of a step and the states before it. It returns the states
# after the step; the first one is the output.
Cell = Callable[[Tensor, States], States]


def _affine(x: Tensor, *, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
    return alpha * x + beta


def _scaled_tanh(x: Tensor, *, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    return alpha * torch.tanh(beta * x)


_ACTIVATIONS: dict[str, Activation] = {
    "affine": _affine,
    "elu": elu,
    "hardsigmoid": hard_sigmoid,
    "leakyrelu": leaky_relu,
    "relu": F.relu,
    "scaledtanh": _scaled_tanh,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "tanh": torch.tanh,
    "thresholdedrelu": thresholded_relu,
}
_USES_ALPHA = ("affine", "elu", "hardsigmoid", "leakyrelu", "scaledtanh", "thresholdedrelu")
_USES_BETA = ("affine", "hardsigmoid", "scaledtanh")


def make_activations(
    names: Sequence[str],
    count: int,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
) -> list[Activation]:
    """Return activation functions by name, which consume alphas and betas in order.

    Raises:
        ValueError: If there are less than `count` names, or one is not supported.
    """
    if len(names) < count:
        raise ValueError(f"{len(names)} activations are too few")
    unused_alphas = list(alphas or [])
    unused_betas = list(betas or [])
    functions: list[Activation] = []
    for name in map(str.lower, names):
        if name not in _ACTIVATIONS:
            raise ValueError(f"activation {name!r} is not supported")
        parameters = {}
        if name in _USES_ALPHA and unused_alphas:
            parameters["alpha"] = unused_alphas.pop(0)
        if name in _USES_BETA and unused_betas:
            parameters["beta"] = unused_betas.pop(0)
        functions.append(partial(_ACTIVATIONS[name], **parameters))
    return functions


def _clip_input(function: Activation, clip: float | None) -> Activation:
    if clip is None:
        return function
    return lambda x: function(x.clamp(-clip, clip))


def _split_biases(b: Tensor | None, w: Tensor) -> Sequence[Tensor]:
    """Return the input biases and the recurrent biases of all directions."""
    if b is None:
        b = w.new_zeros(w.shape[0], 2 * w.shape[1])
    return b.chunk(2, 1)


def _run_steps(
    cell: Cell, projected: Tensor, states: States, lengths: Tensor | None
) -> tuple[Tensor, States]:
    """Run a cell over time and return the outputs of all steps and the last states.

    Past its length, a sequence keeps its state and its output is zero.
    """
    outputs = []
    for t, step in enumerate(projected.unbind(0)):
        new_states = cell(step, states)
        output = new_states[0]
        if lengths is not None:
            is_active = (t < lengths).unsqueeze(1)
            output = torch.where(is_active, output, torch.zeros_like(output))
            pairs = zip(new_states, states, strict=True)
            new_states = tuple(torch.where(is_active, new, old) for new, old in pairs)
        states = new_states
        outputs.append(output)
    if not outputs:
        return projected.new_zeros(0, *states[0].shape), states
    return torch.stack(outputs), states


def _run_directions(
    make_cell: Callable[[int], Cell],
    x: Tensor,
    w: Tensor,
    bias: Tensor,
    initial_states: Sequence[Tensor | None],
    hidden: int,
    sequence_lens: Tensor | None,
    direction: str,
    layout: int,
) -> tuple[Tensor, ...]:
    """Run all directions of a recurrent operator.

    Args:
        make_cell: Returns the cell of a direction.
        x: Input of the operator.
        w: Input weights of all directions.
        bias: What is added to the projected input, for all directions.
        initial_states: Initial states of all directions; None starts at zero.
        hidden: Number of hidden units.
        sequence_lens: Lengths of the sequences; None for the whole input.
        direction: "forward", "reverse" or "bidirectional".
        layout: 1 if the batch is the first axis.

    Returns:
        The outputs of all steps, and the last value of each state.
    """
    direction_axis = 1 if layout else 0
    if layout:
        x = x.transpose(0, 1)
    lengths = None
    if sequence_lens is not None:
        lengths = sequence_lens.to(x.device).long()
    outputs = []
    last_states = []
    for d in range(len(w)):
        is_backward = direction == "reverse" or d == 1
        states: list[Tensor] = []
        for initial in initial_states:
            if initial is None:
                states.append(x.new_zeros(x.shape[1], hidden))
            else:
                states.append(initial.select(direction_axis, d))
        data = _reverse_steps(x, lengths) if is_backward else x
        projected = data @ w[d].T + bias[d]
        y, last = _run_steps(make_cell(d), projected, tuple(states), lengths)
        outputs.append(_reverse_steps(y, lengths) if is_backward else y)
        last_states.append(last)
    y = torch.stack(outputs, 1)
    if layout:
        y = y.permute(2, 0, 1, 3)
    by_state = zip(*last_states, strict=True)
    return y, *(torch.stack(states, direction_axis) for states in by_state)


def _reverse_steps(x: Tensor, lengths: Tensor | None) -> Tensor:
    return x.flip(0) if lengths is None else reverse_time(x, lengths)


@op("RNN", weights=(1, 2, 3), constants=(4,))
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] = ("Tanh", "Tanh"),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    functions = make_activations(activations, len(w), activation_alpha, activation_beta)
    clipped = [_clip_input(function, clip) for function in functions]
    input_bias, recurrent_bias = _split_biases(b, w)

    def make_cell(d: int) -> Cell:
        weight = r[d].T
        return lambda step, states: (clipped[d](step + states[0] @ weight),)

    bias = input_bias + recurrent_bias
    hidden = r.shape[-1]
    return _run_directions(
        make_cell, x, w, bias, [initial_h], hidden, sequence_lens, direction, layout
    )


@op("GRU", weights=(1, 2, 3), constants=(4,))
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:
    names = activations or ["Sigmoid", "Tanh"] * 2
    functions = make_activations(names, 2 * len(w), activation_alpha, activation_beta)
    clipped = [_clip_input(function, clip) for function in functions]
    hidden = r.shape[-1]
    input_bias, recurrent_bias = _split_biases(b, w)

    def make_cell(d: int) -> Cell:
        f, g = clipped[2 * d : 2 * d + 2]
        gate_weight = r[d, : 2 * hidden].T
        gate_bias = recurrent_bias[d, : 2 * hidden]
        new_weight = r[d, 2 * hidden :].T
        new_bias = recurrent_bias[d, 2 * hidden :]

        def cell(step: Tensor, states: States) -> States:
            (h,) = states
            gates = f(step[:, : 2 * hidden] + h @ gate_weight + gate_bias)
            z, reset = gates.chunk(2, 1)
            new_input = step[:, 2 * hidden :]
            if linear_before_reset:
                new = g(new_input + reset * (h @ new_weight + new_bias))
            else:
                new = g(new_input + (reset * h) @ new_weight + new_bias)
            return ((1 - z) * new + z * h,)

        return cell

    return _run_directions(
        make_cell, x, w, input_bias, [initial_h], hidden, sequence_lens, direction, layout
    )


@op("LSTM", weights=(1, 2, 3, 7), constants=(4,))
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    names = activations or ["Sigmoid", "Tanh", "Tanh"] * 2
    functions = make_activations(names, 3 * len(w), activation_alpha, activation_beta)
    clipped = [_clip_input(function, clip) for function in functions]
    input_bias, recurrent_bias = _split_biases(b, w)

    def make_cell(d: int) -> Cell:
        f, g = clipped[3 * d : 3 * d + 2]
        h = functions[3 * d + 2]  # onnxruntime does not clip the cell's state
        weight = r[d].T
        peepholes = (0.0, 0.0, 0.0) if p is None else p[d].chunk(3)
        peep_i, peep_o, peep_f = peepholes

        def cell(step: Tensor, states: States) -> States:
            last, c = states
            gates = step + last @ weight
            i, o, forget, new = gates.chunk(4, 1)
            i = f(i + peep_i * c)
            forget = 1 - i if input_forget else f(forget + peep_f * c)
            c = forget * c + i * g(new)
            return f(o + peep_o * c) * h(c), c

        return cell

    bias = input_bias + recurrent_bias
    hidden = r.shape[-1]
    return _run_directions(
        make_cell, x, w, bias, [initial_h, initial_c], hidden, sequence_lens, direction, layout
    )
