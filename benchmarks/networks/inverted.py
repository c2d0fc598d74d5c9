"""Define MobileNetV2 (Sandler et al., 2018), EfficientNet-B0 and MixNet-S (Tan and Le, 2019)."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from benchmarks.networks.layers import SqueezeExcite, conv_norm, global_mean


class BlockSpec(NamedTuple):
    """A line of the table of a paper: `repeat` blocks, of which the first has the stride."""

    expand: int
    width: int
    repeat: int
    stride: int
    sizes: tuple[int, ...] = (3,)  # sizes of the depthwise convolution
    squeeze: float = 0.0  # squeezed channels / input channels of the block
    act: type[nn.Module] = nn.ReLU6
    expand_parts: int = 1  # parts of the channels with separate 1×1 convolutions
    project_parts: int = 1


MOBILENET_V2 = (
    BlockSpec(1, 16, 1, 1),
    BlockSpec(6, 24, 2, 2),
    BlockSpec(6, 32, 3, 2),
    BlockSpec(6, 64, 4, 2),
    BlockSpec(6, 96, 3, 1),
    BlockSpec(6, 160, 3, 2),
    BlockSpec(6, 320, 1, 1),
)
EFFICIENTNET_B0 = (
    BlockSpec(1, 16, 1, 1, (3,), 0.25),
    BlockSpec(6, 24, 2, 2, (3,), 0.25),
    BlockSpec(6, 40, 2, 2, (5,), 0.25),
    BlockSpec(6, 80, 3, 2, (3,), 0.25),
    BlockSpec(6, 112, 3, 1, (5,), 0.25),
    BlockSpec(6, 192, 4, 2, (5,), 0.25),
    BlockSpec(6, 320, 1, 1, (3,), 0.25),
)
MIXNET_S = (
    BlockSpec(1, 16, 1, 1, (3,), 0, nn.ReLU),
    BlockSpec(6, 24, 1, 2, (3,), 0, nn.ReLU, 2, 2),
    BlockSpec(3, 24, 1, 1, (3,), 0, nn.ReLU, 2, 2),
    BlockSpec(6, 40, 1, 2, (3, 5, 7), 0.5, nn.SiLU),
    BlockSpec(6, 40, 3, 1, (3, 5), 0.5, nn.SiLU, 2, 2),
    BlockSpec(6, 80, 1, 2, (3, 5, 7), 0.25, nn.SiLU, 1, 2),
    BlockSpec(6, 80, 2, 1, (3, 5), 0.25, nn.SiLU, 1, 2),
    BlockSpec(6, 120, 1, 1, (3, 5, 7), 0.5, nn.SiLU, 2, 2),
    BlockSpec(3, 120, 2, 1, (3, 5, 7, 9), 0.5, nn.SiLU, 2, 2),
    BlockSpec(6, 200, 1, 2, (3, 5, 7, 9, 11), 0.5, nn.SiLU),
    BlockSpec(6, 200, 2, 1, (3, 5, 7, 9), 0.5, nn.SiLU, 1, 2),
)


class InvertedResidual(nn.Module):
    """Block of 1×1, depthwise, squeeze-and-excite and 1×1 layers, often with a shortcut."""

    def __init__(self, cin: int, stride: int, row: BlockSpec) -> None:
        super().__init__()
        hidden = cin * row.expand
        layers = nn.Sequential()
        if row.expand > 1:
            layers.add_module(
                "expand", conv_norm(cin, hidden, (1,) * row.expand_parts, act=row.act)
            )
        layers.add_module("depthwise", conv_norm(hidden, hidden, row.sizes, stride, True, row.act))
        if row.squeeze:
            layers.add_module("squeeze", SqueezeExcite(hidden, int(cin * row.squeeze), row.act))
        layers.add_module(
            "project", conv_norm(hidden, row.width, (1,) * row.project_parts, act=None)
        )
        self.layers = layers
        self.has_shortcut = stride == 1 and cin == row.width

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the block."""
        y: Tensor = self.layers(x)
        return x + y if self.has_shortcut else y


class InvertedNetwork(nn.Module):
    """Network of a stem with stride two, the blocks of a table, a 1×1 head and a classifier."""

    def __init__(
        self,
        rows: Sequence[BlockSpec],
        stem: int,
        head: int,
        act: type[nn.Module],
        classes: int,
        channels: int,
    ) -> None:
        super().__init__()
        self.stem = conv_norm(channels, stem, (3,), 2, act=act)
        blocks, cin = [], stem
        for row in rows:
            for i in range(row.repeat):
                blocks.append(InvertedResidual(cin, row.stride if i == 0 else 1, row))
                cin = row.width
        self.blocks = nn.Sequential(*blocks)
        self.head = conv_norm(cin, head, (1,), act=act)
        self.dropout = nn.Dropout(0.2)
        self.classifier = nn.Linear(head, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of a batch of images."""
        scores: Tensor = self.classifier(
            self.dropout(global_mean(self.head(self.blocks(self.stem(x)))))
        )
        return scores


def mobilenetv2(classes: int = 1000, channels: int = 3) -> InvertedNetwork:
    """Return MobileNetV2 of width 1."""
    return InvertedNetwork(MOBILENET_V2, 32, 1280, nn.ReLU6, classes, channels)


def efficientnet_b0(classes: int = 1000, channels: int = 3, swish: bool = False) -> InvertedNetwork:
    """Return EfficientNet-B0 as published (`swish`), or with ReLU6 instead of Swish."""
    act = nn.SiLU if swish else nn.ReLU6
    return InvertedNetwork(
        [row._replace(act=act) for row in EFFICIENTNET_B0], 32, 1280, act, classes, channels
    )


def mixnet_s(classes: int = 1000, channels: int = 3) -> InvertedNetwork:
    """Return MixNet-S."""
    return InvertedNetwork(MIXNET_S, 16, 1536, nn.ReLU, classes, channels)
