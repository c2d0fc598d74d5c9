"""Define convolutions with normalization, MixConv and squeeze-and-excite layers."""

import math
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def split_evenly(channels: int, parts: int) -> list[int]:
    """Return the number of channels of each part; the first part has the remainder."""
    size = channels // parts
    return [channels - size * (parts - 1), *[size] * (parts - 1)]


class MixConv(nn.Module):
    """Convolutions of parts of the channels with different sizes (Tan and Le, 2019)."""

    def __init__(
        self, cin: int, cout: int, sizes: Sequence[int], stride: int, depthwise: bool
    ) -> None:
        super().__init__()
        self.parts = split_evenly(cin, len(sizes))
        outs = split_evenly(cout, len(sizes))
        self.convs = nn.ModuleList(
            make_conv(a, b, (size,), stride, depthwise)
            for a, b, size in zip(self.parts, outs, sizes, strict=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Convolve each part and concatenate the results."""
        parts = torch.split(x, self.parts, 1)
        return torch.cat([conv(part) for conv, part in zip(self.convs, parts, strict=True)], 1)


def make_conv(
    cin: int, cout: int, sizes: Sequence[int] = (3,), stride: int = 1, depthwise: bool = False
) -> nn.Module:
    """Return a padded convolution without bias, or a MixConv for several sizes."""
    if len(sizes) > 1:
        return MixConv(cin, cout, sizes, stride, depthwise)
    (size,) = sizes
    return nn.Conv2d(cin, cout, size, stride, size // 2, groups=cin if depthwise else 1, bias=False)


def conv_norm(
    cin: int,
    cout: int,
    sizes: Sequence[int] = (3,),
    stride: int = 1,
    depthwise: bool = False,
    act: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """Return a convolution, BatchNorm and an activation, which may be None."""
    layers = OrderedDict[str, nn.Module](
        conv=make_conv(cin, cout, sizes, stride, depthwise), bn=nn.BatchNorm2d(cout)
    )
    if act is not None:
        layers["act"] = act()
    return nn.Sequential(layers)


class SqueezeExcite(nn.Module):
    """Scales of the channels by a function of their means (Hu et al., 2018)."""

    def __init__(self, channels: int, squeezed: int, act: type[nn.Module]) -> None:
        super().__init__()
        self.reduce, self.act = nn.Conv2d(channels, squeezed, 1), act()
        self.expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled channels."""
        mean = nn.functional.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.expand(self.act(self.reduce(mean))))


def global_mean(x: Tensor) -> Tensor:
    """Return the mean of each channel, of shape (batch, channels)."""
    return nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)


def initialize_weights(network: nn.Module) -> None:
    """Initialize weights by fan-in (He et al., 2015) and biases with zero.

    The classifier has half the variance, because no ReLU follows it.
    """
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    for layer in layers:
        gain = 1.0 if layer is layers[-1] else 2.0
        nn.init.normal_(layer.weight, 0.0, math.sqrt(gain / layer.weight[0].numel()))
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


@torch.no_grad()
def set_statistics(network: nn.Module, shape: Sequence[int], values: int = 128) -> None:
    """Set the statistics of BatchNorm from images of noise, so that inference gives usual values.

    Args:
        network: The network; it is in inference mode afterward.
        shape: Channels, height and width of an image.
        values: Smallest number of values of a channel, after strides of 32 in total.
    """
    images = math.ceil(values / max(shape[-1] // 32, 1) ** 2)
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0  # replace the statistics by those of the batch
    network.train()(torch.randn(images, *shape))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    network.eval()
