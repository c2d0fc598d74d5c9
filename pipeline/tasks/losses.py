"""Parts of losses, in torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.system import distributed

TEMPERATURE = 4.0  # temperature of distillation


def flat_log_probabilities(output: Tensor, is_probability: bool) -> Tensor:
    """Scores of the classes; a graph that ends in Softmax gives probabilities, whose logarithm serves."""
    return to_log_probabilities(output.float().reshape(len(output), -1), is_probability)


def to_log_probabilities(scores: Tensor, is_probability: bool) -> Tensor:
    """Probabilities become their logarithms; other scores stay."""
    return scores.clamp_min(1e-12).log() if is_probability else scores


def two_class_scores(score: Tensor, is_probability: bool) -> Tensor:
    """Scores of two classes, from that of the second."""
    first = 1 - score if is_probability else torch.zeros_like(score)
    return torch.cat([first, score], 1)


def softened_divergence(scores: Tensor, taught: Tensor) -> Tensor:
    """Divergence from a teacher's softened outputs (Hinton et al., 2015); classes lie on axis 1."""
    soft, wanted = (F.log_softmax(s / TEMPERATURE, 1) for s in (scores, taught))
    return F.kl_div(soft, wanted, reduction="batchmean", log_target=True) * TEMPERATURE**2


def relative_error(values: Tensor, taught: Tensor) -> Tensor:
    """Mean squared error in units of the teacher's own variance in the whole batch: no scale has to be tuned."""
    centred = taught - distributed.all_reduce_mean(taught.mean(0))
    spread, energy = distributed.all_reduce_mean(
        torch.stack([centred.square().mean(), taught.square().mean()])
    ).unbind()
    return F.mse_loss(values, taught) / spread.clamp_min(1e-6 * energy + 1e-30)
