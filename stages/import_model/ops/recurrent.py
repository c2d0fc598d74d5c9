"""RNN, GRU and LSTM.

The input is projected for all steps at once. Then a cell runs step by step.
"""

# ruff: noqa: ARG001 - every attribute of the standard is a keyword, also where it changes nothing here

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.registry import op

Activation = Callable[[Tensor], Tensor]
States = tuple[Tensor, ...]

# name → function of (x, alpha, beta) and the defaults of alpha and beta
_ACTIVATIONS: dict[str, tuple[Callable[[Tensor, float, float], Tensor], float, float]] = {
    "relu": (lambda x, _a, _b: F.relu(x), 0.0, 0.0),
    "tanh": (lambda x, _a, _b: torch.tanh(x), 0.0, 0.0),
    "sigmoid": (lambda x, _a, _b: torch.sigmoid(x), 0.0, 0.0),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a, _b: F.leaky_relu(x, a), 0.01, 0.0),
    "thresholdedrelu": (lambda x, a, _b: F.threshold(x, a, 0.0), 1.0, 0.0),
    "scaledtanh": (lambda x, a, b: a * torch.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: (a * x + b).clamp(0, 1), 0.2, 0.5),
    "elu": (lambda x, a, _b: F.elu(x, a), 1.0, 0.0),
    "softsign": (lambda x, _a, _b: F.softsign(x), 0.0, 0.0),
    "softplus": (lambda x, _a, _b: F.softplus(x), 0.0, 0.0),
}
_USES_ALPHA = frozenset(
    {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
)
_USES_BETA = frozenset({"affine", "scaledtanh", "hardsigmoid"})


def _make_activations(
    names: Sequence[str],
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    clip: float | None,
) -> list[Activation]:
    """Return the functions with the given names.

    Alphas and betas are consumed in order by the functions that have them.
    """
    left, right = list(alphas or []), list(betas or [])

    def make_function(name: str) -> Activation:
        key = name.lower()
        function, alpha, beta = _ACTIVATIONS[key]
        alpha = left.pop(0) if key in _USES_ALPHA and left else alpha
        beta = right.pop(0) if key in _USES_BETA and right else beta
        if clip is None:
            return lambda x: function(x, alpha, beta)
        return lambda x: function(x.clamp(-clip, clip), alpha, beta)

    return [make_function(name) for name in names]


def _reverse_time(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Reverse time, each sequence within its own length."""
    if lengths is None:
        return x.flip(0)
    steps = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    source = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return x.gather(0, source.unsqueeze(-1).expand_as(x))


def _run_cell(
    projected: Tensor,
    states: States,
    cell: Callable[[Tensor, States], States],
    lengths: Tensor | None,
) -> tuple[Tensor, States]:
    """Run a cell over time.

    Past its length, a sequence keeps its state and its output is zero.

    Returns:
        The outputs of all steps, and the last states.
    """
    outputs = []
    for t, step in enumerate(projected.unbind(0)):
        new = cell(step, states)
        if lengths is not None:
            alive = (t < lengths).unsqueeze(1)
            outputs.append(torch.where(alive, new[0], torch.zeros_like(new[0])))
            states = tuple(torch.where(alive, n, s) for n, s in zip(new, states, strict=True))
        else:
            states = new
            outputs.append(new[0])
    if not outputs:
        return projected.new_zeros(0, *states[0].shape), states
    return torch.stack(outputs), states


def _run_directions(
    x: Tensor,
    hidden: int,
    initial: Sequence[Tensor | None],
    sequence_lens: Tensor | None,
    direction: str,
    layout: int,
    make_cell: Callable[[int], tuple[Tensor, Tensor, Callable[[Tensor, States], States]]],
) -> tuple[Tensor, ...]:
    """Run all directions of a recurrent operator.

    Args:
        x: Input of the operator.
        hidden: Number of hidden units.
        initial: Initial states; None starts at zero.
        sequence_lens: Lengths of the sequences; None for the whole input.
        direction: "forward", "reverse" or "bidirectional".
        layout: 1 if the batch is the first axis.
        make_cell: Returns input weight, input bias and cell of a direction.

    Returns:
        The outputs of all steps, and the last value of each state.
    """
    if layout:
        x = x.transpose(0, 1)
        initial = [None if s is None else s.transpose(0, 1) for s in initial]
    lengths = None if sequence_lens is None else sequence_lens.to(x.device).long()
    count = 2 if direction == "bidirectional" else 1
    outputs, finals = [], []
    for d in range(count):
        backwards = direction == "reverse" or d == 1
        weight, bias, cell = make_cell(d)
        data = _reverse_time(x, lengths) if backwards else x
        start = tuple(x.new_zeros(x.shape[1], hidden) if s is None else s[d] for s in initial)
        y, states = _run_cell(data @ weight.T + bias, start, cell, lengths)
        outputs.append(_reverse_time(y, lengths) if backwards else y)
        finals.append(states)
    y = torch.stack(outputs, 1)
    last = [torch.stack(s) for s in zip(*finals, strict=True)]
    if layout:
        return (y.permute(2, 0, 1, 3), *(s.transpose(0, 1) for s in last))
    return (y, *last)


def _split_biases(b: Tensor | None, like: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """Return input bias and recurrent bias of one direction."""
    if b is None:
        zero = like.new_zeros(like.shape[1])
        return zero, zero
    half = b.shape[1] // 2
    return b[d, :half], b[d, half:]


def _activation_names(
    activations: Sequence[str] | None, default: Sequence[str], direction: str
) -> list[str]:
    names = list(activations or list(default) * 2)
    if len(names) < len(default) * (2 if direction == "bidirectional" else 1):
        raise ValueError(f"{len(names)} activations are too few")
    return names


@op("RNN", since=7, weights=(1, 2, 3), constants=(4,))
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
    acts = _make_activations(
        _activation_names(activations, ["Tanh"], direction), activation_alpha, activation_beta, clip
    )

    def make_cell(d: int) -> tuple[Tensor, Tensor, Callable[[Tensor, States], States]]:
        input_bias, recurrent_bias = _split_biases(b, w, d)
        return w[d], input_bias + recurrent_bias, lambda step, s: (acts[d](step + s[0] @ r[d].T),)

    return _run_directions(x, r.shape[-1], [initial_h], sequence_lens, direction, layout, make_cell)


@op("GRU", since=7, weights=(1, 2, 3), constants=(4,))
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
    names = _activation_names(activations, ["Sigmoid", "Tanh"], direction)
    acts = _make_activations(names, activation_alpha, activation_beta, clip)
    hidden = r.shape[-1]

    def make_cell(d: int) -> tuple[Tensor, Tensor, Callable[[Tensor, States], States]]:
        input_bias, recurrent_bias = _split_biases(b, w, d)
        f, g = acts[2 * d : 2 * d + 2]
        gates, candidate = r[d, : 2 * hidden], r[d, 2 * hidden :]
        gate_bias, candidate_bias = recurrent_bias[: 2 * hidden], recurrent_bias[2 * hidden :]

        def cell(step: Tensor, states: States) -> States:
            (h,) = states
            z, reset = f(step[:, : 2 * hidden] + h @ gates.T + gate_bias).chunk(2, 1)
            if linear_before_reset:
                new = g(step[:, 2 * hidden :] + reset * (h @ candidate.T + candidate_bias))
            else:
                new = g(step[:, 2 * hidden :] + (reset * h) @ candidate.T + candidate_bias)
            return ((1 - z) * new + z * h,)

        return w[d], input_bias, cell

    return _run_directions(x, hidden, [initial_h], sequence_lens, direction, layout, make_cell)


@op("LSTM", since=7, weights=(1, 2, 3, 7), constants=(4,))
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
    names = _activation_names(activations, ["Sigmoid", "Tanh", "Tanh"], direction)
    acts = _make_activations(names, activation_alpha, activation_beta, clip)
    free = _make_activations(
        names, activation_alpha, activation_beta, None
    )  # onnxruntime does not clip the cell's state
    hidden = r.shape[-1]

    def make_cell(d: int) -> tuple[Tensor, Tensor, Callable[[Tensor, States], States]]:
        input_bias, recurrent_bias = _split_biases(b, w, d)
        f, g, h = acts[3 * d], acts[3 * d + 1], free[3 * d + 2]
        peep_i, peep_o, peep_f = (0.0, 0.0, 0.0) if p is None else p[d].chunk(3)

        def cell(step: Tensor, states: States) -> States:
            last, c = states
            i, o, forget, new = (step + last @ r[d].T).chunk(4, 1)
            i = f(i + peep_i * c)
            forget = 1 - i if input_forget else f(forget + peep_f * c)
            c = forget * c + i * g(new)
            return f(o + peep_o * c) * h(c), c

        return w[d], input_bias + recurrent_bias, cell

    return _run_directions(
        x, hidden, [initial_h, initial_c], sequence_lens, direction, layout, make_cell
    )
