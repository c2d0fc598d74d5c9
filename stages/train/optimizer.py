"""The optimizer: which one and with which settings where nothing is said of it, and what it keeps of each weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ltp_pipeline.graph.layer_kinds import has_layer_norm_or_attention
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.view import iter_uses
from ltp_pipeline.settings.schema import OptimizerName, TrainSettings
from ltp_pipeline.stages.import_model.network import Network

STEEP_CLIP = 1.0  # norm to which a steep loss's gradient is shortened
_SECOND_BETA = 0.999  # of AdamW; the first is the momentum
_EMBEDDINGS: Mapping[str, tuple[int, ...]] = {"Gather": (0,), "EmbedLayerNormalization": (2, 3, 4)}
_COUNTER = "step"  # what an optimizer keeps that is no tensor of the weight's shape


class OptimizerSettings(NamedTuple):
    """The settings of training that depend on the optimizer, none of them open; named as in TrainSettings."""

    optimizer: OptimizerName
    lr: float
    weight_decay: float
    warmup_fraction: float
    max_grad_norm: float

    @property
    def threshold_lr(self) -> float:
        """Rate of the thresholds at the start.

        SGD's thresholds have the rate of its weights. AdamW moves a weight by its rate whatever the gradient, so its
        rate is small; thresholds are no part of that and move as under SGD.
        """
        return self.lr if self.optimizer == "sgd" else DEFAULTS["sgd"].lr


DEFAULTS: Mapping[OptimizerName, OptimizerSettings] = {
    "sgd": OptimizerSettings(
        "sgd", lr=0.03, weight_decay=0.0, warmup_fraction=0.0, max_grad_norm=0.0
    ),
    "adamw": OptimizerSettings(
        "adamw", lr=1e-4, weight_decay=0.01, warmup_fraction=0.06, max_grad_norm=1.0
    ),
}


def choose_optimizer(given: TrainSettings, model: OnnxModel) -> OptimizerName:
    """The optimizer that is given, or else AdamW for a network with layer norms or attention, SGD for any other."""
    return given.optimizer or ("adamw" if has_layer_norm_or_attention(model) else "sgd")


def resolve_optimizer_settings(
    given: TrainSettings, model: OnnxModel, is_steep: bool
) -> OptimizerSettings:
    """What is given, and for the rest what is usual for the optimizer; a steep loss's gradient is always clipped."""
    usual = DEFAULTS[choose_optimizer(given, model)]
    if is_steep:
        usual = usual._replace(max_grad_norm=STEEP_CLIP)
    said = {
        name: value
        for name in OptimizerSettings._fields
        if (value := getattr(given, name)) is not None
    }
    return usual._replace(**said)


def make_optimizer(
    network: Network, parameters: Mapping[str, Tensor], settings: OptimizerSettings, momentum: float
) -> torch.optim.Optimizer:
    """The optimizer of these parameters; AdamW does not decay norms and biases."""
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            parameters.values(),
            settings.lr,
            momentum,
            weight_decay=settings.weight_decay,
            fused=True,
        )
    matrices = _decayed_names(network)
    groups: dict[float, list[Tensor]] = {}
    for name, p in parameters.items():
        decay = settings.weight_decay if name in matrices and p.dim() > 1 else 0.0
        groups.setdefault(decay, []).append(p)
    return torch.optim.AdamW(
        [{"params": members, "weight_decay": decay} for decay, members in groups.items()],
        settings.lr,
        (momentum, _SECOND_BETA),
        fused=True,
    )


def iter_moments(optimizer: torch.optim.Optimizer, w: Tensor) -> Iterator[Tensor]:
    """What the optimizer remembers of a weight's gradients, element by element."""
    for name, value in optimizer.state[w].items():
        if name != _COUNTER and value is not None:
            yield value


def _decayed_names(network: Network) -> set[str]:
    read = iter_uses(network.file.model.graph)
    embeddings = {name for node, slot, name in read if slot in _EMBEDDINGS.get(node.op_type, ())}
    return embeddings | {k.name for k in network.kernels}
