"""Parts of losses that several tasks share, in torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.system import distributed

TEMPERATURE = 4.0  # of distillation
MIN_PROBABILITY = 1e-12  # smaller probabilities count as this before the logarithm


def to_logits(scores: Tensor, is_probability: bool, is_single: bool = False) -> Tensor:
    """Return logits as they are, and the logarithms of probabilities.

    Args:
        scores: Scores of classes.
        is_probability: True if they are probabilities.
        is_single: True if axis 1 has only the score of class 1; that of class 0 is added.
    """
    if is_single:
        first = 1 - scores if is_probability else torch.zeros_like(scores)
        scores = torch.cat([first, scores], 1)
    return scores.clamp_min(MIN_PROBABILITY).log() if is_probability else scores


def softened_divergence(logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """Return the divergence from a teacher's softened probabilities (Hinton et al., 2015).

    Args:
        logits: Logits or log-probabilities of shape (samples, classes).
        teacher_logits: Those of the teacher; same shape.
    """
    softened = F.log_softmax(logits / TEMPERATURE, 1)
    teacher_softened = F.log_softmax(teacher_logits / TEMPERATURE, 1)
    divergence = F.kl_div(softened, teacher_softened, reduction="batchmean", log_target=True)
    return divergence * TEMPERATURE**2


def relative_error(values: Tensor, teacher_values: Tensor) -> Tensor:
    """Return the mean squared error divided by the teacher's variance in the batch of all ranks."""
    centered = teacher_values - distributed.all_reduce_mean(teacher_values.mean(0))
    moments = torch.stack([centered.square().mean(), teacher_values.square().mean()])
    variance, energy = distributed.all_reduce_mean(moments).unbind()
    return F.mse_loss(values, teacher_values) / variance.clamp_min(1e-6 * energy + 1e-30)
