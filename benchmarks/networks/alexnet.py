"""Define AlexNet in the single-tower form of TorchVision (Krizhevsky, 2014: *One weird trick*)."""

from torch import Tensor, nn

# Width, size, stride and padding.
CONVOLUTIONS = (
    (64, 11, 4, 2),
    (192, 5, 1, 2),
    (384, 3, 1, 1),
    (256, 3, 1, 1),
    (256, 3, 1, 1),
)
POOLED = (0, 1, 4)  # indices of the convolutions before max pooling
HIDDEN = 4096


class AlexNet(nn.Module):
    """Network of five convolutions and three linear layers with Dropout."""

    def __init__(self, classes: int = 1000, channels: int = 3, size: int = 224) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, (width, conv_size, stride, pad) in enumerate(CONVOLUTIONS):
            layers += [nn.Conv2d(channels, width, conv_size, stride, pad), nn.ReLU()]
            channels, size = width, (size + 2 * pad - conv_size) // stride + 1
            if i in POOLED:
                layers.append(nn.MaxPool2d(3, 2))
                size = (size - 3) // 2 + 1
        if size < 1:
            raise ValueError("images must have at least 63 px for the strides of AlexNet")
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
        """Return the class scores of a batch of images."""
        scores: Tensor = self.classifier(self.features(x).flatten(1))
        return scores
