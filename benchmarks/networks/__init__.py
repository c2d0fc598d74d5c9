"""The networks of the paper as plain torch modules, written from their own papers; weights are untrained.

python -m benchmarks.networks resnet50 --out resnet50.onnx
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from benchmarks.networks.alexnet import AlexNet
from benchmarks.networks.export import as_onnx
from benchmarks.networks.inverted import efficientnet_b0, mixnet_s, mobilenetv2
from benchmarks.networks.layers import initialise, settle
from benchmarks.networks.resnet import ResNet20, ResNet50

__all__ = ["NETWORKS", "ResNet20", "ResNet50", "as_onnx", "bare", "build"]


class Network(NamedTuple):
    """How a network is made, and for what."""

    make: Callable[..., nn.Module]
    classes: int = 1000
    size: int = 224
    sized: bool = False  # whether its weights depend on the size of images


NETWORKS = {
    "resnet20": Network(ResNet20, classes=10, size=32),
    "alexnet": Network(AlexNet, sized=True),
    "resnet50": Network(ResNet50),
    "mobilenetv2": Network(mobilenetv2),
    "efficientnet-b0": Network(efficientnet_b0),
    "efficientnet-b0-swish": Network(partial(efficientnet_b0, swish=True)),
    "mixnet-s": Network(mixnet_s),
}


def bare(
    name: str, classes: int | None = None, channels: int = 3, size: int | None = None
) -> nn.Module:
    """A network of the table as torch makes it."""
    network = NETWORKS[name]
    sized = {"size": size or network.size} if network.sized else {}
    return network.make(classes=classes or network.classes, channels=channels, **sized)


def build(
    name: str, classes: int | None = None, channels: int = 3, size: int | None = None, seed: int = 0
) -> nn.Module:
    """A network of the table with initial values by seed, in inference mode."""
    size = size or NETWORKS[name].size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = bare(name, classes, channels, size)
        initialise(network)
        settle(network, (channels, size, size))
    return network
