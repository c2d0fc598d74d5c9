"""Define ResNet20 for CIFAR and ResNet50 for ImageNet (He et al., 2016)."""

import torch
from torch import Tensor, nn

from benchmarks.networks.layers import conv_norm, global_mean

# Width, number of blocks and stride of the first block.
STAGES_50 = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
STAGES_20 = ((16, 3, 1), (32, 3, 2), (64, 3, 2))


class BasicBlock(nn.Module):
    """Block of two 3×3 convolutions; the shortcut is padded with zeros (option A)."""

    def __init__(self, cin: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv_norm(cin, width, (3,), stride)
        self.conv2 = conv_norm(width, width, act=None)
        self.stride, self.missing = stride, width - cin

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the block."""
        y = self.conv2(self.conv1(x))
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        if self.missing:
            x = nn.functional.pad(
                x, (0, 0, 0, 0, self.missing // 2, self.missing - self.missing // 2)
            )
        return torch.relu(y + x)


class Bottleneck(nn.Module):
    """Block of 1×1, 3×3 and 1×1; the shortcut is a 1×1 convolution if shapes differ (option B)."""

    def __init__(self, cin: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv_norm(cin, width, (1,))
        self.conv2 = conv_norm(width, width, (3,), stride)
        self.conv3 = conv_norm(width, 4 * width, (1,), act=None)
        differs = stride > 1 or cin != 4 * width
        self.shortcut = (
            conv_norm(cin, 4 * width, (1,), stride, act=None) if differs else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the block."""
        y: Tensor = self.conv3(self.conv2(self.conv1(x)))
        return torch.relu(y + self.shortcut(x))


class ResNet20(nn.Module):
    """Network of three stages of three basic blocks, for small images."""

    def __init__(self, classes: int = 10, channels: int = 3) -> None:
        super().__init__()
        self.stem = conv_norm(channels, 16)
        blocks, cin = [], 16
        for width, count, stride in STAGES_20:
            blocks += [
                BasicBlock(cin if i == 0 else width, width, stride if i == 0 else 1)
                for i in range(count)
            ]
            cin = width
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(cin, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of a batch of images."""
        scores: Tensor = self.classifier(global_mean(self.blocks(self.stem(x))))
        return scores


class ResNet50(nn.Module):
    """Network of four stages of bottlenecks."""

    def __init__(self, classes: int = 1000, channels: int = 3) -> None:
        super().__init__()
        self.stem = conv_norm(channels, 64, (7,), 2)
        blocks, cin = [], 64
        for width, count, stride in STAGES_50:
            blocks += [
                Bottleneck(cin if i == 0 else 4 * width, width, stride if i == 0 else 1)
                for i in range(count)
            ]
            cin = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(cin, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of a batch of images."""
        y = nn.functional.max_pool2d(self.stem(x), 3, 2, 1)
        scores: Tensor = self.classifier(global_mean(self.blocks(y)))
        return scores
