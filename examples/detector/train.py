"""Draw pictures of squares, discs and triangles, train a small detector on them, export it.

python train.py
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from task import PICTURES, SHAPES, MeanAveragePrecision, dataset, loss
from torch import nn

SIZE = 64  # pixels per side of a picture
CHANNELS = 3
MAX_OBJECTS = 3  # objects in a picture
MODEL = Path(__file__).with_name("detector.onnx")
SPLITS = {"train": 3000, "val": 250, "test": 250}  # number of pictures


def draw_picture(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a noisy picture of some shapes, with their boxes and classes."""
    y, x = np.mgrid[:SIZE, :SIZE] + 0.5
    picture = rng.uniform(0, 120, (CHANNELS, 1, 1)) + rng.normal(0, 12, (CHANNELS, SIZE, SIZE))
    boxes = np.zeros((MAX_OBJECTS, 4), np.float32)
    classes = np.full(MAX_OBJECTS, -1)
    for row in range(rng.integers(1, MAX_OBJECTS, endpoint=True)):
        size = rng.integers(10, 26)
        left, top = rng.integers(0, SIZE - size, 2)
        box = np.array([left, top, left + size, top + size], np.float32)
        if any(overlaps(box, other) for other in boxes[:row]):
            continue  # it would hide the other object
        number = rng.integers(len(SHAPES))
        u, v = (x - left) / size, (y - top) / size  # from 0 to 1 inside the box
        is_inside = (u > 0) & (u < 1) & (v > 0) & (v < 1)
        is_inside &= [True, (u - 0.5) ** 2 + (v - 0.5) ** 2 < 0.25, abs(u - 0.5) < v / 2][number]
        color = rng.uniform(100, 255, (CHANNELS, 1))
        picture[:, is_inside] = color + rng.normal(0, 12, (CHANNELS, is_inside.sum()))
        boxes[row] = box
        classes[row] = number
    return picture.clip(0, 255).astype(np.uint8), boxes, classes


def overlaps(box: np.ndarray, other: np.ndarray) -> bool:
    """Return True if two boxes share an area."""
    corner = np.maximum(box[:2], other[:2])
    return bool((corner < np.minimum(box[2:], other[2:])).all())


def write_pictures(fraction: float) -> None:
    """Write a fraction of the pictures of all splits; they are the same in every call."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, count in SPLITS.items():
        drawn = [draw_picture(rng) for _ in range(round(fraction * count))]
        pictures, boxes, classes = zip(*drawn, strict=True)
        arrays[f"pictures_{split}"] = np.stack(pictures)
        arrays[f"boxes_{split}"] = np.stack(boxes)
        arrays[f"classes_{split}"] = np.stack(classes)
    np.savez(PICTURES, **arrays)


class Detector(nn.Module):
    """A network that predicts classes and boxes for each cell of 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs, stride in [
            (CHANNELS, 16, 2),
            (16, 32, 2),
            (32, 64, 2),
            (64, 64, 1),
            (64, 64, 1),
        ]:
            layers.append(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False))
            layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.heat = nn.Conv2d(64, len(SHAPES), 1)
        self.box = nn.Conv2d(64, 4, 1)
        nn.init.constant_(self.heat.bias, -4.0)  # most cells have no object

    def forward(self, picture: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return class logits, and (left, top, log width, log height) from the cell's corner."""
        features = self.body(picture)
        return self.heat(features), self.box(features)


def make_loader(
    split: str, batch_size: int = 32
) -> "torch.utils.data.DataLoader[dict[str, torch.Tensor]]":
    """Return a loader of a split, which shuffles training samples."""
    return torch.utils.data.DataLoader(dataset(split), batch_size, shuffle=split == "train")


def train_detector(epochs: int) -> Detector:
    """Return a new detector after training."""
    torch.manual_seed(0)
    network = Detector()
    loader = make_loader("train")
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, epochs * len(loader))
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            heat, box = network(batch["picture"])
            loss({"heat": heat, "box": box}, batch).backward()
            optimizer.step()
            schedule.step()
    return network.eval()


def measure_detector(network: Detector) -> float:
    """Return the mAP on the test split."""
    metric = MeanAveragePrecision()
    with torch.inference_mode():
        for batch in make_loader("test"):
            heat, box = network(batch["picture"])
            metric.update({"heat": heat, "box": box}, batch)
    return metric.compute()


def export_detector(network: Detector) -> None:
    """Write the detector as ONNX."""
    with warnings.catch_warnings():
        # torch recommends its other exporter, which requires a further package.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (torch.zeros(1, CHANNELS, SIZE, SIZE),),
            MODEL,
            input_names=["picture"],
            output_names=["heat", "box"],
            dynamic_axes={name: {0: "N"} for name in ("picture", "heat", "box")},
            dynamo=False,
        )


def main() -> None:
    """Draw pictures, train, measure and export."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fraction", type=float, default=1.0, help="of the pictures to draw")
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    start = time.perf_counter()
    write_pictures(arguments.fraction)
    network = train_detector(arguments.epochs)
    value = measure_detector(network)
    export_detector(network)
    print(f"{MODEL.name}: mAP {value:.1%} on test, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
