"""Infer the shapes of a graph's values by onnx, so that no damaged graph ends the process.

onnx ends the process if a Slice has an axis whose inferred size is negative, as a Pad or a window
larger than its input can make it. Graphs with a Slice are therefore inferred in a child process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from onnx import ModelProto, NodeProto, shape_inference

from ltp_pipeline.graph.nodes import iter_nodes
from ltp_pipeline.system.child_process import call_once
from ltp_pipeline.system.scratch import temporary_folder

_FUNCTION = f"{__name__}:infer_file"


def infer_shapes(proto: ModelProto, data_prop: bool = False, strict: bool = False) -> ModelProto:
    """Return a model with the shapes of its values, as far as onnx infers them.

    Args:
        proto: The model.
        data_prop: Infer with the values of small tensors too.
        strict: Raise an error if types or shapes contradict each other.

    Raises:
        Exception: onnx cannot infer the shapes, or ended its process.
    """
    if not any(node.op_type == "Slice" for node in _iter_all_nodes(proto)):
        return _infer(proto, data_prop, strict)
    with temporary_folder("shapes") as folder:
        path = folder / "model.onnx"
        path.write_bytes(proto.SerializeToString())
        call_once(_FUNCTION, str(path), data_prop, strict)
        inferred = ModelProto()
        inferred.ParseFromString(path.read_bytes())
        return inferred


def infer_file(path: str, data_prop: bool, strict: bool) -> None:
    """Replace the file of a model by one with the shapes of its values."""
    proto = ModelProto()
    proto.ParseFromString(Path(path).read_bytes())
    Path(path).write_bytes(_infer(proto, data_prop, strict).SerializeToString())


def _infer(proto: ModelProto, data_prop: bool, strict: bool) -> ModelProto:
    return shape_inference.infer_shapes(
        proto, check_type=strict, strict_mode=strict, data_prop=data_prop
    )


def _iter_all_nodes(proto: ModelProto) -> Iterator[NodeProto]:
    """Yield the nodes of the graph, of its subgraphs and of its functions."""
    for owner in (proto.graph, *proto.functions):
        yield from iter_nodes(owner)
