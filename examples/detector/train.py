"""Make pictures of squares, discs and triangles, train a small detector on them, and write detector.onnx.

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

SIZE, CHANNELS = 64, 3
OBJECTS = 3  # at most, in a picture
MODEL = Path(__file__).with_name("detector.onnx")
SPLITS = {"train": 3000, "val": 250, "test": 250}  # pictures in each


def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A noisy picture with up to OBJECTS shapes in it, their boxes and classes."""
    y, x = np.mgrid[:SIZE, :SIZE] + 0.5
    picture = rng.uniform(0, 120, (CHANNELS, 1, 1)) + rng.normal(0, 12, (CHANNELS, SIZE, SIZE))
    boxes, classes = np.zeros((OBJECTS, 4), np.float32), np.full(OBJECTS, -1)
    for row in range(rng.integers(1, OBJECTS, endpoint=True)):
        size = rng.integers(10, 26)
        left, top = rng.integers(0, SIZE - size, 2)
        box = np.array([left, top, left + size, top + size], np.float32)
        if any(
            (np.maximum(box[:2], b[:2]) < np.minimum(box[2:], b[2:])).all() for b in boxes[:row]
        ):
            continue  # it would hide another
        kind = rng.integers(len(SHAPES))
        u, v = (x - left) / size, (y - top) / size  # from 0 to 1 inside the box
        inside = (u > 0) & (u < 1) & (v > 0) & (v < 1)
        inside &= [True, (u - 0.5) ** 2 + (v - 0.5) ** 2 < 0.25, abs(u - 0.5) < v / 2][kind]
        picture[:, inside] = rng.uniform(100, 255, (CHANNELS, 1)) + rng.normal(
            0, 12, (CHANNELS, inside.sum())
        )
        boxes[row], classes[row] = box, kind
    return picture.clip(0, 255).astype(np.uint8), boxes, classes


def make_pictures(share: float) -> None:
    """Write the pictures of all splits, or a share of them; the same ones each time."""
    rng, arrays = np.random.default_rng(0), {}
    for split, count in SPLITS.items():
        pictures, boxes, classes = zip(
            *(draw(rng) for _ in range(round(share * count))), strict=True
        )
        arrays[f"pictures_{split}"] = np.stack(pictures)
        arrays[f"boxes_{split}"] = np.stack(boxes)
        arrays[f"classes_{split}"] = np.stack(classes)
    np.savez(PICTURES, **arrays)


class Detector(nn.Module):
    """For each cell of 8 x 8 pixels: how sure each class is to have its centre there, and the box."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(CHANNELS, 16, 2), (16, 32, 2), (32, 64, 2), (64, 64, 1), (64, 64, 1)]
        blocks = [
            (nn.Conv2d(a, b, 3, s, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
            for a, b, s in sizes
        ]
        self.body = nn.Sequential(*(layer for block in blocks for layer in block))
        self.heat = nn.Conv2d(64, len(SHAPES), 1)
        self.box = nn.Conv2d(64, 4, 1)
        nn.init.constant_(self.heat.bias, -4.0)  # most cells are empty

    def forward(self, picture: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of the classes, and (left, top, log width, log height) from the corner of the cell."""
        seen = self.body(picture)
        return self.heat(seen), self.box(seen)


def batches(split: str, size: int = 32) -> "torch.utils.data.DataLoader[dict[str, torch.Tensor]]":
    """The samples of a split, those for training in a new order each time."""
    return torch.utils.data.DataLoader(dataset(split), size, shuffle=split == "train")


def train(epochs: int) -> Detector:
    """Train a new detector."""
    torch.manual_seed(0)
    network = Detector()
    data = batches("train")
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, epochs * len(data))
    for _ in range(epochs):
        for batch in data:
            optimizer.zero_grad()
            heat, box = network(batch["picture"])
            loss({"heat": heat, "box": box}, batch).backward()
            optimizer.step()
            schedule.step()
    return network.eval()


def main() -> None:
    """Make, train, measure, export."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--share", type=float, default=1.0, help="of the pictures that are made")
    options.add_argument("--epochs", type=int, default=8)
    given, begun = options.parse_args(), time.perf_counter()
    make_pictures(given.share)
    network, measured = train(given.epochs), MeanAveragePrecision()
    with torch.inference_mode():
        for batch in batches("test"):
            heat, box = network(batch["picture"])
            measured.update({"heat": heat, "box": box}, batch)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # torch would rather use its other exporter, which needs a further package
        torch.onnx.export(
            network,
            (torch.zeros(1, CHANNELS, SIZE, SIZE),),
            MODEL,
            input_names=["picture"],
            output_names=["heat", "box"],
            dynamic_axes={name: {0: "N"} for name in ("picture", "heat", "box")},
            dynamo=False,
        )
    print(
        f"{MODEL.name}: mAP {measured.compute():.1%} on test, {time.perf_counter() - begun:.0f} s"
    )


if __name__ == "__main__":
    main()
