"""Build the networks of the paper as torch modules with random weights.

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
from benchmarks.networks.layers import initialize_weights, set_statistics
from benchmarks.networks.resnet import ResNet20, ResNet50

__all__ = ["NETWORKS", "ResNet20", "ResNet50", "as_onnx", "build_network", "make_module"]


class Network(NamedTuple):
    """The module of a network, its number of classes and its image size."""

    make: Callable[..., nn.Module]
    classes: int = 1000
    size: int = 224
    is_sized: bool = False  # its weights depend on the image size


NETWORKS = {
    "resnet20": Network(ResNet20, classes=10, size=32),
    "alexnet": Network(AlexNet, is_sized=True),
    "resnet50": Network(ResNet50),
    "mobilenetv2": Network(mobilenetv2),
    "efficientnet-b0": Network(efficientnet_b0),
    "efficientnet-b0-swish": Network(partial(efficientnet_b0, swish=True)),
    "mixnet-s": Network(mixnet_s),
}


def make_module(
    name: str, classes: int | None = None, channels: int = 3, size: int | None = None
) -> nn.Module:
    """Return a network with the initial weights of torch; arguments as in `build_network`."""
    network = NETWORKS[name]
    options = {"size": size or network.size} if network.is_sized else {}
    return network.make(classes=classes or network.classes, channels=channels, **options)


def build_network(
    name: str, classes: int | None = None, channels: int = 3, size: int | None = None, seed: int = 0
) -> nn.Module:
    """Return a network with He-initialized weights, in inference mode.

    Args:
        name: Name of the network in NETWORKS.
        classes: Number of classes; None for that of the paper.
        channels: Channels of the images.
        size: Height and width of the images; None for that of the paper.
        seed: Seed of the weights.
    """
    size = size or NETWORKS[name].size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make_module(name, classes, channels, size)
        initialize_weights(network)
        set_statistics(network, (channels, size, size))
    return network
