"""Loss functions."""

import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.registry import op

_NO_INDEX = -(1 << 31)  # a label that cannot occur: nothing is ignored


# The standard defines both losses by functions, in which class weights would be trained.
@op("NegativeLogLikelihoodLoss", constants=(1, 2))
def negative_log_likelihood_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    if ignore_index is None:
        ignore_index = _NO_INDEX
    if weight is not None:
        weight = weight.to(x.device)
    labels = target.to(x.device).long()
    return F.nll_loss(x, labels, weight, ignore_index=ignore_index, reduction=reduction)


@op("SoftmaxCrossEntropyLoss", constants=(1, 2))
def softmax_cross_entropy_loss(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:
    logs = F.log_softmax(scores, 1)
    loss = negative_log_likelihood_loss(
        logs, labels, weights, ignore_index=ignore_index, reduction=reduction
    )
    return loss, logs
