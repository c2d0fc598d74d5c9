"""The optimizer: which one is used, its default settings, and the moments that it keeps."""

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

STEEP_CLIP = 1.0  # norm to which the gradient of an unbounded loss is clipped
_SECOND_BETA = 0.999  # of AdamW; the first beta is the momentum
# Inputs that hold embeddings, by operator.
_EMBEDDINGS: Mapping[str, tuple[int, ...]] = {"Gather": (0,), "EmbedLayerNormalization": (2, 3, 4)}
_COUNTER = "step"  # the only optimizer state that is not of the weight's shape


class OptimizerSettings(NamedTuple):
    """Settings of training that depend on the optimizer, named as in TrainSettings.

    Every setting has a value here, given by the user or the default of the optimizer.
    """

    optimizer: OptimizerName
    lr: float
    weight_decay: float
    warmup_fraction: float
    max_grad_norm: float

    @property
    def threshold_lr(self) -> float:
        """Learning rate of the thresholds at the beginning, which paper mode uses.

        Under SGD, thresholds have the learning rate of the weights. AdamW moves a weight by its
        learning rate whatever the gradient is, so that rate is small. Thresholds do not move that
        way, and keep the rate that SGD has.
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


def choose_optimizer(settings: TrainSettings, model: OnnxModel) -> OptimizerName:
    """Return the optimizer to use.

    The default is AdamW for a model with layer normalization or attention, and SGD otherwise.
    """
    if settings.optimizer is not None:
        return settings.optimizer
    return "adamw" if has_layer_norm_or_attention(model) else "sgd"


def resolve_optimizer_settings(
    settings: TrainSettings, model: OnnxModel, is_steep: bool
) -> OptimizerSettings:
    """Return the optimizer and all of its settings.

    Args:
        settings: The [train] section; a value of None selects the default of the optimizer.
        model: The model.
        is_steep: Whether the loss may have a gradient of any size. Such a gradient is clipped
            unless the user sets max_grad_norm.
    """
    resolved = DEFAULTS[choose_optimizer(settings, model)]
    if is_steep:
        resolved = resolved._replace(max_grad_norm=STEEP_CLIP)
    for name in OptimizerSettings._fields:
        value = getattr(settings, name)
        if value is not None:
            resolved = resolved._replace(**{name: value})
    return resolved


def make_optimizer(
    network: Network, parameters: Mapping[str, Tensor], settings: OptimizerSettings, momentum: float
) -> torch.optim.Optimizer:
    """Return the optimizer of the given parameters.

    AdamW decays only layer weights and embeddings, not normalization layers and biases.
    """
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            parameters.values(),
            settings.lr,
            momentum,
            weight_decay=settings.weight_decay,
            fused=True,
        )
    decayed = _decayed_names(network)
    groups: dict[float, list[Tensor]] = {}
    for name, p in parameters.items():
        decay = settings.weight_decay if name in decayed and p.dim() > 1 else 0.0
        groups.setdefault(decay, []).append(p)
    return torch.optim.AdamW(
        [{"params": members, "weight_decay": decay} for decay, members in groups.items()],
        settings.lr,
        (momentum, _SECOND_BETA),
        fused=True,
    )


def iter_moments(optimizer: torch.optim.Optimizer, w: Tensor) -> Iterator[Tensor]:
    """Yield what the optimizer keeps of a weight's gradients, tensors of the weight's shape."""
    for name, value in optimizer.state[w].items():
        if name != _COUNTER and value is not None:
            yield value


def _decayed_names(network: Network) -> set[str]:
    """Return the names of layer weights and embeddings."""
    names = {layer.name for layer in network.layer_weights}
    for node, slot, name in iter_uses(network.file.model.graph):
        if slot in _EMBEDDINGS.get(node.op_type, ()):
            names.add(name)
    return names
