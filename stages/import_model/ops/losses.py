"""Loss functions."""

import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.registry import op

_NO_INDEX = -(1 << 31)  # a label that cannot occur: nothing is ignored


@op("NegativeLogLikelihoodLoss", since=12, constants=(1, 2))
def negative_log_likelihood_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    ignored = _NO_INDEX if ignore_index is None else ignore_index
    weight = None if weight is None else weight.to(x.device)
    return F.nll_loss(
        x, target.to(x.device).long(), weight, ignore_index=ignored, reduction=reduction
    )


@op("SoftmaxCrossEntropyLoss", since=12, constants=(1, 2))
def softmax_cross_entropy_loss(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    n_outputs: int = 1,
) -> Tensor | tuple[Tensor, Tensor]:
    logs = F.log_softmax(scores, 1)
    loss: Tensor = negative_log_likelihood_loss(
        logs, labels, weights, ignore_index=ignore_index, reduction=reduction
    )
    return (loss, logs) if n_outputs > 1 else loss
