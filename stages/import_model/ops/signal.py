"""Fourier transforms, windows and mel filters."""

import math

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import check_sizes, positive_axis, to_torch_type
from ltp_pipeline.stages.import_model.registry import op


def _to_complex(x: Tensor) -> Tensor:
    """Return a complex tensor; the last axis holds a real number or a pair."""
    return torch.view_as_complex(x.contiguous()) if x.shape[-1] == 2 else x.squeeze(-1)


def _transform_axis(
    x: Tensor, length: int | None, axis: int, inverse: int, onesided: int
) -> Tensor:
    axis = positive_axis(axis, x.dim())
    signal = _to_complex(x)
    if inverse and onesided:
        size = length or 2 * (x.shape[axis] - 1)
        real: Tensor = torch.fft.irfft(signal, size, axis)
        return real.unsqueeze(-1).to(x.dtype)
    check_sizes([length or 0])
    y = torch.fft.ifft(signal, length, axis) if inverse else torch.fft.fft(signal, length, axis)
    if onesided:
        y = y.narrow(axis, 0, y.shape[axis] // 2 + 1)
    return torch.view_as_real(y).to(x.dtype)


@op("DFT", since=17, constants=(1,))
def dft_17(
    x: Tensor,
    dft_length: Tensor | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    return _transform_axis(
        x, None if dft_length is None else int(dft_length), axis, inverse, onesided
    )


@op("DFT", since=20, constants=(1, 2))
def dft_20(
    x: Tensor,
    dft_length: Tensor | None = None,
    axis: Tensor | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    length = None if dft_length is None else int(dft_length)
    return _transform_axis(x, length, -2 if axis is None else int(axis), inverse, onesided)


@op("STFT", since=17, constants=(1, 3))
def stft(
    signal: Tensor,
    frame_step: Tensor,
    window: Tensor | None = None,
    frame_length: Tensor | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    natural = signal.shape[1] if window is None else window.shape[0]
    length = natural if frame_length is None else int(frame_length)
    frames = _to_complex(signal).unfold(1, length, int(frame_step))
    if window is not None:
        frames = frames * window
    y = torch.fft.fft(frames, length)
    if onesided:
        y = y[..., : length // 2 + 1]
    return torch.view_as_real(y).to(signal.dtype)


def _make_cosine_window(size: Tensor, periodic: int, output_datatype: int, *terms: float) -> Tensor:
    (count,) = check_sizes([int(size)])
    phase = torch.arange(count, dtype=torch.float64) * (
        2 * math.pi / (count if periodic else count - 1)
    )
    total = sum(
        (a * torch.cos(k * phase) for k, a in enumerate(terms)), start=torch.zeros_like(phase)
    )
    return total.to(to_torch_type(output_datatype))


@op("HannWindow", since=17, constants=(0,))
def hann_window(size: Tensor, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    return _make_cosine_window(size, periodic, output_datatype, 0.5, -0.5)


@op("HammingWindow", since=17, constants=(0,))
def hamming_window(size: Tensor, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    return _make_cosine_window(size, periodic, output_datatype, 25 / 46, -21 / 46)


@op("BlackmanWindow", since=17, constants=(0,))
def blackman_window(size: Tensor, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    return _make_cosine_window(size, periodic, output_datatype, 0.42, -0.5, 0.08)


@op("MelWeightMatrix", since=17, constants=(0, 1, 2, 3, 4))
def mel_weight_matrix(
    num_mel_bins: Tensor,
    dft_length: Tensor,
    sample_rate: Tensor,
    lower_edge_hertz: Tensor,
    upper_edge_hertz: Tensor,
    *,
    output_datatype: int = 1,
) -> Tensor:
    bins, length, rate = int(num_mel_bins), int(dft_length), int(sample_rate)
    check_sizes([length // 2 + 1, bins])
    low, high = (
        2595 * math.log10(1 + float(f) / 700) for f in (lower_edge_hertz, upper_edge_hertz)
    )
    mel = torch.arange(bins + 2, dtype=torch.float64) * ((high - low) / (bins + 2)) + low
    edges = torch.floor((length + 1) * (700 * (10 ** (mel / 2595) - 1)) / rate)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    line = torch.arange(length // 2 + 1, dtype=torch.float64).unsqueeze(1)
    # Where two edges fall on the same line the slope is a step of height one.
    rise = torch.where(
        centre > left, (line - left) / (centre - left).clamp(min=1), (line == centre).double()
    )
    fall = (right - line) / (right - centre).clamp(min=1)
    rising = (line >= left) & (line <= centre)
    falling = (line >= centre) & (line < right)
    y = torch.where(falling, fall, torch.where(rising, rise, torch.zeros_like(line)))
    return y.to(to_torch_type(output_datatype))
