"""Inverted residuals: MobileNetV2 (Sandler et al., 2018), EfficientNet-B0 and MixNet-S (Tan and Le, 2019)."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from benchmarks.networks.layers import SqueezeExcite, conv_norm, global_mean


class Row(NamedTuple):
    """A line of a paper's table: `repeat` blocks, of which the first has the stride."""

    expand: int
    width: int
    repeat: int
    stride: int
    sizes: tuple[int, ...] = (3,)  # of the depthwise kernels
    squeeze: float = 0.0  # channels between squeeze and excite / channels of the block's input
    act: type[nn.Module] = nn.ReLU6
    expand_parts: int = 1  # 1×1 convolutions in so many parts of the channels
    project_parts: int = 1


MOBILENET_V2 = (
    Row(1, 16, 1, 1),
    Row(6, 24, 2, 2),
    Row(6, 32, 3, 2),
    Row(6, 64, 4, 2),
    Row(6, 96, 3, 1),
    Row(6, 160, 3, 2),
    Row(6, 320, 1, 1),
)
EFFICIENTNET_B0 = (
    Row(1, 16, 1, 1, (3,), 0.25),
    Row(6, 24, 2, 2, (3,), 0.25),
    Row(6, 40, 2, 2, (5,), 0.25),
    Row(6, 80, 3, 2, (3,), 0.25),
    Row(6, 112, 3, 1, (5,), 0.25),
    Row(6, 192, 4, 2, (5,), 0.25),
    Row(6, 320, 1, 1, (3,), 0.25),
)
MIXNET_S = (
    Row(1, 16, 1, 1, (3,), 0, nn.ReLU),
    Row(6, 24, 1, 2, (3,), 0, nn.ReLU, 2, 2),
    Row(3, 24, 1, 1, (3,), 0, nn.ReLU, 2, 2),
    Row(6, 40, 1, 2, (3, 5, 7), 0.5, nn.SiLU),
    Row(6, 40, 3, 1, (3, 5), 0.5, nn.SiLU, 2, 2),
    Row(6, 80, 1, 2, (3, 5, 7), 0.25, nn.SiLU, 1, 2),
    Row(6, 80, 2, 1, (3, 5), 0.25, nn.SiLU, 1, 2),
    Row(6, 120, 1, 1, (3, 5, 7), 0.5, nn.SiLU, 2, 2),
    Row(3, 120, 2, 1, (3, 5, 7, 9), 0.5, nn.SiLU, 2, 2),
    Row(6, 200, 1, 2, (3, 5, 7, 9, 11), 0.5, nn.SiLU),
    Row(6, 200, 2, 1, (3, 5, 7, 9), 0.5, nn.SiLU, 1, 2),
)


class Inverted(nn.Module):
    """Widen by 1×1, convolve each channel, squeeze and excite, narrow by 1×1; a shortcut where shapes agree."""

    def __init__(self, cin: int, stride: int, row: Row) -> None:
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
        self.residual = stride == 1 and cin == row.width

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        y: Tensor = self.layers(x)
        return x + y if self.residual else y


class InvertedNetwork(nn.Module):
    """A stem of stride two, the blocks of a table, a 1×1 head, Dropout and a classifier."""

    def __init__(
        self,
        rows: Sequence[Row],
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
                blocks.append(Inverted(cin, row.stride if i == 0 else 1, row))
                cin = row.width
        self.blocks = nn.Sequential(*blocks)
        self.head = conv_norm(cin, head, (1,), act=act)
        self.dropout = nn.Dropout(0.2)
        self.classifier = nn.Linear(head, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        scores: Tensor = self.classifier(
            self.dropout(global_mean(self.head(self.blocks(self.stem(x)))))
        )
        return scores


def mobilenetv2(classes: int = 1000, channels: int = 3) -> InvertedNetwork:
    """MobileNetV2 of width 1."""
    return InvertedNetwork(MOBILENET_V2, 32, 1280, nn.ReLU6, classes, channels)


def efficientnet_b0(classes: int = 1000, channels: int = 3, swish: bool = False) -> InvertedNetwork:
    """EfficientNet-B0 as it was published (`swish`), or with ReLU6 in place of Swish."""
    act = nn.SiLU if swish else nn.ReLU6
    return InvertedNetwork(
        [row._replace(act=act) for row in EFFICIENTNET_B0], 32, 1280, act, classes, channels
    )


def mixnet_s(classes: int = 1000, channels: int = 3) -> InvertedNetwork:
    """MixNet-S."""
    return InvertedNetwork(MIXNET_S, 16, 1536, nn.ReLU, classes, channels)
