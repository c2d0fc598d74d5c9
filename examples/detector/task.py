"""The task of the detector: pictures with boxes, the loss it was trained with, and COCO's mAP.

`ltp-pipeline run detector.onnx --task task.py` reads `dataset`, `loss`, `measure` and `metric`.
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

from ltp_pipeline import Metric

PICTURES = Path(__file__).with_name("pictures.npz")  # written by train.py
SHAPES = ("square", "disc", "triangle")
STRIDE = 8  # pixels between neighboring cells of the output
MAX_BOXES = 10  # detections per picture that are evaluated

metric = Metric("mAP")  # a fraction; higher is better
fingerprint = hashlib.sha256(PICTURES.read_bytes()).hexdigest() if PICTURES.exists() else ""


class Pictures:
    """Pictures with boxes as (left, top, right, bottom) in pixels.

    Each picture has the same number of rows. A row without a box has the class -1.
    """

    def __init__(self, split: str) -> None:
        """Load the pictures of a split."""
        with np.load(PICTURES) as arrays:
            self.pictures = arrays[f"pictures_{split}"]
            self.boxes = arrays[f"boxes_{split}"]
            self.classes = arrays[f"classes_{split}"]

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        picture = self.pictures[i].astype(np.float32) / 255  # "picture" is the model's input
        return {"picture": picture, "boxes": self.boxes[i], "classes": self.classes[i]}


def dataset(split: str) -> Pictures:
    """Return the samples of "train", "val" or "test"."""
    return Pictures(split)


def loss(outputs: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the focal loss of classes plus the distance of boxes, averaged over boxes."""
    pictures, rows = torch.nonzero(batch["classes"] >= 0, as_tuple=True)
    classes = batch["classes"][pictures, rows]
    boxes = batch["boxes"][pictures, rows]
    centers = (boxes[:, :2] + boxes[:, 2:]) / 2 / STRIDE
    sizes = (boxes[:, 2:] - boxes[:, :2]) / STRIDE
    x, y = centers.long().unbind(1)
    heat = outputs["heat"]
    target = torch.zeros_like(heat)
    target[pictures, classes, y, x] = 1
    focus = (target - heat.sigmoid()).square()
    class_loss = focus * F.binary_cross_entropy_with_logits(heat, target, reduction="none")
    predicted = outputs["box"][pictures, :, y, x]
    box_loss = (predicted - torch.cat([centers % 1, sizes.log()], 1)).abs()
    return (class_loss.sum() + box_loss.sum()) / max(len(boxes), 1)


def decode(outputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return scores, classes and boxes (left, top, width, height) of the best cells.

    A cell counts only if its score is the largest among its neighbors.
    """
    heat = outputs["heat"].sigmoid()
    is_peak = heat == F.max_pool2d(heat, 3, 1, 1)
    scores, places = (heat * is_peak).flatten(1).topk(MAX_BOXES)
    num_cells = heat[0, 0].numel()
    classes = places // num_cells
    cells = places % num_cells
    values = outputs["box"].flatten(2).gather(2, cells[:, None].expand(-1, 4, -1))
    left, top, width, height = values.unbind(1)
    columns = heat.shape[3]
    centers = torch.stack([cells % columns + left, cells // columns + top], 2) * STRIDE
    sizes = torch.stack([width, height], 2).clamp(max=4).exp() * STRIDE
    return scores, classes, torch.cat([centers - sizes / 2, sizes], 2)


class MeanAveragePrecision:
    """COCO's mAP: the mean over classes and over overlaps from 0.5 to 0.95."""

    def __init__(self) -> None:
        """Start without pictures."""
        self.num_pictures = 0
        self.annotations: list[dict] = []
        self.detections: list[np.ndarray] = []

    def update(self, outputs: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> None:
        """Add the pictures of a batch."""
        scores, classes, boxes = decode(outputs)
        image_ids = self.num_pictures + torch.arange(1, len(scores) + 1)
        columns = [
            image_ids[:, None, None].expand(-1, MAX_BOXES, 1),
            boxes,
            scores[..., None],
            classes[..., None],
        ]
        self.detections.append(torch.cat(columns, 2).flatten(0, 1).double().numpy())
        for picture, row in torch.nonzero(batch["classes"] >= 0).tolist():
            left, top, right, bottom = batch["boxes"][picture, row].tolist()
            width, height = right - left, bottom - top
            annotation = {
                "id": len(self.annotations) + 1,
                "image_id": int(image_ids[picture]),
                "category_id": int(batch["classes"][picture, row]),
                "bbox": [left, top, width, height],
                "area": width * height,
                "iscrowd": 0,
            }
            self.annotations.append(annotation)
        self.num_pictures += len(scores)

    def compute(self) -> float:
        """Return the mAP of all pictures so far."""
        truth = COCO()
        truth.dataset = {
            "info": {},
            "images": [{"id": i + 1} for i in range(self.num_pictures)],
            "categories": [{"id": i, "name": name} for i, name in enumerate(SHAPES)],
            "annotations": self.annotations,
        }
        with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints its progress
            truth.createIndex()
            detections = truth.loadRes(np.concatenate(self.detections))
            evaluation = COCOeval(truth, detections, "bbox")
            evaluation.params.maxDets = [MAX_BOXES]
            evaluation.params.areaRng = [[0, 1e10]]
            evaluation.params.areaRngLbl = ["all"]
            evaluation.evaluate()
            evaluation.accumulate()
        precision = evaluation.eval["precision"]
        defined = precision[precision >= 0]  # it is -1 for a class that no picture has
        return float(defined.mean()) if defined.size else 0.0


measure = MeanAveragePrecision
