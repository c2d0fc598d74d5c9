"""Fourier transforms and mel filters."""

import math
from functools import partial

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import check_sizes, positive_axis, to_torch_type
from ltp_pipeline.stages.import_model.registry import op


def _to_complex(x: Tensor) -> Tensor:
    """Return a complex tensor; the last axis holds a real number or a pair."""
    if x.shape[-1] == 2:
        return torch.view_as_complex(x.contiguous())
    return x.squeeze(-1)


@op("DFT", since=20, constants=(1, 2))
def dft(
    x: Tensor,
    dft_length: Tensor | None = None,
    axis: Tensor | int | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    dim = -2 if axis is None else int(axis)
    dim = positive_axis(dim, x.dim())
    length = None if dft_length is None else int(dft_length)
    check_sizes([length or 0])
    signal = _to_complex(x)
    if inverse and onesided:
        size = length or 2 * (x.shape[dim] - 1)
        real: Tensor = torch.fft.irfft(signal, size, dim)
        return real.unsqueeze(-1).to(x.dtype)
    transform = torch.fft.ifft if inverse else torch.fft.fft
    y = transform(signal, length, dim)
    if onesided:
        y = y.narrow(dim, 0, y.shape[dim] // 2 + 1)
    return torch.view_as_real(y).to(x.dtype)


op("DFT", constants=(1,))(partial(dft, axis=1))


@op("STFT", constants=(1, 3))
def stft(
    signal: Tensor,
    frame_step: Tensor,
    window: Tensor | None = None,
    frame_length: Tensor | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    length = signal.shape[1] if window is None else window.shape[0]
    if frame_length is not None:
        length = int(frame_length)
    frames = _to_complex(signal).unfold(1, length, int(frame_step))
    if window is not None:
        frames = frames * window
    y = torch.fft.fft(frames, length)
    if onesided:
        y = y[..., : length // 2 + 1]
    return torch.view_as_real(y).to(signal.dtype)


def _to_mel(frequency: Tensor) -> float:
    return 2595 * math.log10(1 + float(frequency) / 700)


@op("MelWeightMatrix", constants=(0, 1, 2, 3, 4))
def mel_weight_matrix(
    num_mel_bins: Tensor,
    dft_length: Tensor,
    sample_rate: Tensor,
    lower_edge_hertz: Tensor,
    upper_edge_hertz: Tensor,
    *,
    output_datatype: int = 1,
) -> Tensor:
    bins = int(num_mel_bins)
    length = int(dft_length)
    check_sizes([length // 2 + 1, bins])
    low = _to_mel(lower_edge_hertz)
    width = (_to_mel(upper_edge_hertz) - low) / (bins + 2)
    mel = torch.arange(bins + 2, dtype=torch.float64) * width + low
    frequency = 700 * (10 ** (mel / 2595) - 1)
    edges = torch.floor((length + 1) * frequency / int(sample_rate))
    left = edges[:-2]
    center = edges[1:-1]
    right = edges[2:]
    line = torch.arange(length // 2 + 1, dtype=torch.float64).unsqueeze(1)
    rise = (line - left) / (center - left).clamp(min=1)
    # Where two edges fall on the same line the slope is a step of height one.
    rise = torch.where(center > left, rise, 1.0)
    fall = (right - line) / (right - center).clamp(min=1)
    is_rising = (line >= left) & (line <= center)
    is_falling = (line >= center) & (line < right)
    y = torch.where(is_rising, rise, 0.0)
    y = torch.where(is_falling, fall, y)
    return y.to(to_torch_type(output_datatype))
