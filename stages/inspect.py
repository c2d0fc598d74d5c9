"""What a model is made of and what `run` would do with it; needs no data and changes nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from ltp_pipeline import exporters
from ltp_pipeline.config import KernelSettings
from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.records import ModelFile, TensorInfo
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.import_model.unsupported import unsupported_nodes


def inspect(model: Path | str, kernels: KernelSettings | None = None) -> dict[str, Any]:
    """Describe a model as plain values."""
    file = import_model.read(model)
    graph = file.proto.graph
    problems = unsupported_nodes(file.proto)
    listed = _kernels(file, kernels or KernelSettings()) if not problems else []
    elements = sum(k["elements"] for k in listed)
    return {
        "path": str(model),
        "sha256": file.sha256,
        "bytes": file.bytes,
        "opset": file.opset,
        "ir_version": file.proto.ir_version,
        "producer": f"{file.proto.producer_name} {file.proto.producer_version}".strip() or None,
        "inputs": [_tensor(i) for i in file.inputs],
        "outputs": [_tensor(o) for o in file.outputs],
        "operators": dict(sorted(Counter(n.op_type for n in graph.node).items())),
        "unsupported": problems,
        "batch_norms": sum(n.op_type == "BatchNormalization" for n in graph.node),
        "kernels": listed,
        "kernel_elements": elements,
        "prunable_elements": sum(k["elements"] for k in listed if k["prunable"]),
        "sparsity": 1 - sum(k["nonzeros"] for k in listed) / elements if elements else None,
    }


def _kernels(file: ModelFile, settings: KernelSettings) -> list[dict[str, Any]]:
    try:
        found = import_model.build(file, settings).kernels
    except UnsupportedModel:
        return []
    values = exporters.read_tensors(file.proto, [k.name for k in found])
    total = sum(k.elements for k in found)
    return [
        {
            "name": k.name,
            "op": k.op,
            "shape": list(k.shape),
            "elements": k.elements,
            "share": k.elements / total,
            "nonzeros": int(np.count_nonzero(values[k.name])),
            "prunable": k.prunable,
            "reason": k.reason,
        }
        for k in found
    ]


def _tensor(info: TensorInfo) -> dict[str, Any]:
    return {"name": info.name, "type": info.type, "shape": None if info.shape is None else list(info.shape)}
