"""What the networks are made of: convolutions with their norms, mixed kernels, squeeze-and-excite, initial values."""

import math
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def split_evenly(channels: int, parts: int) -> list[int]:
    """Channels of each part; what does not divide goes to the first."""
    share = channels // parts
    return [channels - share * (parts - 1), *[share] * (parts - 1)]


class Mixed(nn.Module):
    """MixConv (Tan and Le, 2019): the channels in parts, each convolved with a kernel of its own size."""

    def __init__(
        self, cin: int, cout: int, sizes: Sequence[int], stride: int, depthwise: bool
    ) -> None:
        super().__init__()
        self.parts = split_evenly(cin, len(sizes))
        outs = split_evenly(cout, len(sizes))
        self.convs = nn.ModuleList(
            convolution(a, b, (size,), stride, depthwise)
            for a, b, size in zip(self.parts, outs, sizes, strict=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Convolve the parts and put them together again."""
        parts = torch.split(x, self.parts, 1)
        return torch.cat([conv(part) for conv, part in zip(self.convs, parts, strict=True)], 1)


def convolution(
    cin: int, cout: int, sizes: Sequence[int] = (3,), stride: int = 1, depthwise: bool = False
) -> nn.Module:
    """A convolution without bias that keeps the map's size but for its stride; several sizes make it a mixed one."""
    if len(sizes) > 1:
        return Mixed(cin, cout, sizes, stride, depthwise)
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
    """A convolution, its norm and, unless None, an activation."""
    layers = OrderedDict[str, nn.Module](
        conv=convolution(cin, cout, sizes, stride, depthwise), bn=nn.BatchNorm2d(cout)
    )
    if act is not None:
        layers["act"] = act()
    return nn.Sequential(layers)


class SqueezeExcite(nn.Module):
    """Channels scaled by what the whole map says (Hu et al., 2018)."""

    def __init__(self, channels: int, squeezed: int, act: type[nn.Module]) -> None:
        super().__init__()
        self.reduce, self.act = nn.Conv2d(channels, squeezed, 1), act()
        self.expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Scale the channels."""
        mean = nn.functional.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.expand(self.act(self.reduce(mean))))


def global_mean(x: Tensor) -> Tensor:
    """Mean of each channel: (batch, channels)."""
    return nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)


def initialise(network: nn.Module) -> None:
    """He et al. (2015), fan-in; a classifier, which no ReLU follows, at half the variance; biases zero."""
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    for layer in layers:
        gain = 1.0 if layer is layers[-1] else 2.0
        nn.init.normal_(layer.weight, 0.0, math.sqrt(gain / layer.weight[0].numel()))
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


@torch.no_grad()
def settle(network: nn.Module, shape: Sequence[int], values: int = 128) -> None:
    """Give every norm the statistics of what reaches it from noise, so that the network is tame in inference too.

    There is enough noise for so many values a channel where the map has shrunk to a 32nd.
    """
    images = math.ceil(values / max(shape[-1] // 32, 1) ** 2)
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0  # take the batch's statistics as they are
    network.train()(torch.randn(images, *shape))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    network.eval()
