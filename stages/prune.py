"""Hard-prune: go on from a network of the trail, where what lies below its layer's threshold is zero and stays so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from ltp_pipeline import exporters
from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.records import ImportedModel, PrunedModel, TrailEntry
from ltp_pipeline.stages.import_model.restore_bn import calibrate
from ltp_pipeline.stages.import_model.tensors import array_to_torch
from ltp_pipeline.workspace import Workspace

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch import Tensor


def run(entry: TrailEntry, imported: ImportedModel, workspace: Workspace) -> PrunedModel:
    """Load an entry of the trail into the live module; its zeros are the masks."""
    tensors = imported.module.tensors()
    _load_model(imported, exporters.load(workspace.trail_path(entry.entry)))
    masks = {k.name: tensors[k.name].detach() != 0 for k in imported.prunable}
    for name, mask in masks.items():
        if not mask.any() and exporters.read_tensors(imported.proto, [name])[name].any():
            raise TrainingFailed(f"layer {name!r} lost all its weights", "raise method.floor, or ask for less")
    return PrunedModel(masks, count_nonzeros(imported), {"prune": entry.epoch, "finetune": 0})


@torch.no_grad()
def load_tensors(imported: ImportedModel, values: Mapping[str, Tensor]) -> None:
    """Put tensors into the live module by their ONNX names."""
    tensors = imported.module.tensors()
    for name, value in values.items():
        tensors[name].copy_(value)


@torch.no_grad()
def apply_masks(imported: ImportedModel, masks: Mapping[str, Tensor]) -> None:
    """Set every weight outside its mask to zero (never to -0.0)."""
    tensors = imported.module.tensors()
    for name, mask in masks.items():
        tensors[name].masked_fill_(~mask.to(tensors[name].device), 0.0)


def load_original(imported: ImportedModel) -> None:
    """Set the live module back to the weights of the original file."""
    _load_model(imported, imported.proto)


def _load_model(imported: ImportedModel, model: ModelProto) -> None:
    """Put the tensors of a file with the original graph into the live module."""
    added = {name for norm in imported.restored.norms for name in norm.added}
    arrays = exporters.read_tensors(model, [name for name in imported.module.tensors() if name not in added])
    load_tensors(imported, {name: array_to_torch(array) for name, array in arrays.items()})
    calibrate(imported)


def count_nonzeros(imported: ImportedModel) -> dict[str, int]:
    """Nonzeros of every kernel, prunable or not, as the live module has them."""
    tensors = imported.module.tensors()
    return {k.name: int(tensors[k.name].count_nonzero()) for k in imported.kernels}
