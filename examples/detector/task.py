"""What the detector is for: pictures with boxes, the loss it was trained with, and COCO's mAP.

`ltp-pipeline run detector.onnx --task task.py` takes `dataset`, `loss`, `measure` and `metric` from here.
"""

import contextlib
import hashlib
import io
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from ltp_pipeline.results.metric import Metric

PICTURES = Path(__file__).with_name("pictures.npz")  # train.py makes it
SHAPES = ("square", "disc", "triangle")
STRIDE = 8  # pixels from one cell of the output to the next
MOST = 10  # boxes that count, in a picture

metric = Metric("mAP")  # a share, higher is better
fingerprint = hashlib.sha256(PICTURES.read_bytes()).hexdigest() if PICTURES.exists() else ""


class Pictures:
    """Pictures with their boxes: (left, top, right, bottom) in pixels; a class of -1 fills up a row without a box."""

    def __init__(self, split: str) -> None:
        with np.load(PICTURES) as arrays:
            self.pictures, self.boxes, self.classes = (
                arrays[f"{n}_{split}"] for n in ("pictures", "boxes", "classes")
            )

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        picture = self.pictures[i].astype(np.float32) / 255  # the model's input is called picture
        return {"picture": picture, "boxes": self.boxes[i], "classes": self.classes[i]}


def dataset(split: str) -> Pictures:
    """The samples of "train", "val" or "test"."""
    return Pictures(split)


def loss(outputs: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Focal loss of the class in each cell, and the distance of the boxes in cells where the centre of one lies."""
    picture, row = torch.nonzero(batch["classes"] >= 0, as_tuple=True)
    kinds, boxes = batch["classes"][picture, row], batch["boxes"][picture, row]
    centre, size = (
        (boxes[:, :2] + boxes[:, 2:]) / 2 / STRIDE,
        (boxes[:, 2:] - boxes[:, :2]) / STRIDE,
    )
    x, y = centre.long().unbind(1)
    wanted = torch.zeros_like(outputs["heat"])
    wanted[picture, kinds, y, x] = 1
    wrong = (wanted - outputs["heat"].sigmoid()).abs()
    heat = wrong**2 * F.binary_cross_entropy_with_logits(outputs["heat"], wanted, reduction="none")
    found = outputs["box"][picture, :, y, x]
    return (heat.sum() + (found - torch.cat([centre % 1, size.log()], 1)).abs().sum()) / max(
        len(boxes), 1
    )


def decode(outputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores, classes and boxes (left, top, width, height) of the best MOST cells that no cell beside them beats."""
    heat = outputs["heat"].sigmoid()
    scores, places = (heat * (heat == F.max_pool2d(heat, 3, 1, 1))).flatten(1).topk(MOST)
    kinds, cells = places // heat[0, 0].numel(), places % heat[0, 0].numel()
    left, top, width, height = (
        outputs["box"].flatten(2).gather(2, cells[:, None].expand(-1, 4, -1)).unbind(1)
    )
    columns = heat.shape[3]
    centre = torch.stack([cells % columns + left, cells // columns + top], 2) * STRIDE
    size = torch.stack([width, height], 2).clamp(max=4).exp() * STRIDE
    return scores, kinds, torch.cat([centre - size / 2, size], 2)


class MeanAveragePrecision:
    """COCO's: the mean over classes and over overlaps from 0.5 to 0.95, by pycocotools."""

    def __init__(self) -> None:
        self.pictures = 0
        self.true: list[dict] = []
        self.found: list[np.ndarray] = []

    def update(self, outputs: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> None:
        """Take a batch into account."""
        scores, kinds, boxes = decode(outputs)
        numbers = self.pictures + torch.arange(1, len(scores) + 1)
        rows = [
            numbers[:, None, None].expand(-1, MOST, 1),
            boxes,
            scores[..., None],
            kinds[..., None],
        ]
        self.found.append(torch.cat(rows, 2).flatten(0, 1).double().numpy())
        for picture, row in torch.nonzero(batch["classes"] >= 0).tolist():
            left, top, right, bottom = batch["boxes"][picture, row].tolist()
            box = [left, top, right - left, bottom - top]
            kind = int(batch["classes"][picture, row])
            entry = {
                "image_id": int(numbers[picture]),
                "category_id": kind,
                "bbox": box,
                "area": box[2] * box[3],
            }
            self.true.append({**entry, "id": len(self.true) + 1, "iscrowd": 0})
        self.pictures += len(scores)

    def compute(self) -> float:
        """The mAP of all batches so far."""
        truth = COCO()
        truth.dataset = {
            "info": {},
            "images": [{"id": i + 1} for i in range(self.pictures)],
            "categories": [{"id": i, "name": name} for i, name in enumerate(SHAPES)],
            "annotations": self.true,
        }
        with contextlib.redirect_stdout(io.StringIO()):  # pycocotools tells what it does
            truth.createIndex()
            judge = COCOeval(truth, truth.loadRes(np.concatenate(self.found)), "bbox")
            judge.params.maxDets = [MOST]
            judge.params.areaRng, judge.params.areaRngLbl = [[0, 1e10]], ["all"]
            judge.evaluate()
            judge.accumulate()
        precision = judge.eval["precision"]  # -1 for a class that no picture has
        return float(precision[precision >= 0].mean()) if (precision >= 0).any() else 0.0


measure = MeanAveragePrecision
