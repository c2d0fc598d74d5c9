"""AlexNet in the single-tower form (Krizhevsky, 2014: *One weird trick*) that TorchVision has; no norms."""

from torch import Tensor, nn

CONVOLUTIONS = (
    (64, 11, 4, 2),
    (192, 5, 1, 2),
    (384, 3, 1, 1),
    (256, 3, 1, 1),
    (256, 3, 1, 1),
)  # width, size, stride, pad
POOLED = (0, 1, 4)  # convolutions that max pooling follows
HIDDEN = 4096


class AlexNet(nn.Module):
    """Five convolutions, three linear layers with Dropout."""

    def __init__(self, classes: int = 1000, channels: int = 3, size: int = 224) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, (width, kernel, stride, pad) in enumerate(CONVOLUTIONS):
            layers += [nn.Conv2d(channels, width, kernel, stride, pad), nn.ReLU()]
            channels, size = width, (size + 2 * pad - kernel) // stride + 1
            if i in POOLED:
                layers.append(nn.MaxPool2d(3, 2))
                size = (size - 3) // 2 + 1
        if size < 1:
            raise ValueError("images are too small for AlexNet's strides; give at least 63 px")
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Dropout(),
            nn.Linear(channels * size**2, HIDDEN),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        scores: Tensor = self.classifier(self.features(x).flatten(1))
        return scores
