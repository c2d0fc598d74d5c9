"""Checks that must hold for every model that can be imported."""

from __future__ import annotations

import numpy as np
import torch
from onnx import ModelProto, NodeProto

from ltp_pipeline.settings.schema import ModelSettings
from ltp_pipeline.stages.import_model.parity import compare_outputs
from ltp_pipeline.stages.import_model.values import array_to_torch
from ltp_pipeline.stages.write_back import to_file_weights
from tests.support.imported import Imported, import_network
from tests.support.models import Array, random_inputs, run_onnxruntime

NEVER = ModelSettings(simplify="never")


def check_round_trip(
    model: ModelProto, feeds: dict[str, Array] | None = None, tolerance: float = 1e-4
) -> Imported:
    """Check that weights have gradients, and that changed weights work in onnxruntime as in torch."""
    before = model.SerializeToString(deterministic=True)
    result = import_network(model, settings=NEVER)
    assert model.SerializeToString(deterministic=True) == before
    assert result.parity is not None, result.notes
    feeds = feeds or random_inputs(model)
    check_gradients(result, feeds)
    check_write_back(result, model, feeds, tolerance)
    return result


def check_gradients(result: Imported, feeds: dict[str, Array]) -> None:
    outputs = result(*(array_to_torch(f) for f in feeds.values()))
    sum(y.float().square().sum() for y in outputs if y.is_floating_point()).backward()
    weights = [result.state[name] for name in result.forward.weight_names]
    assert weights
    assert all(t.grad is not None for t in weights)


def check_write_back(
    result: Imported, model: ModelProto, feeds: dict[str, Array], tolerance: float = 1e-4
) -> ModelProto:
    with torch.no_grad():
        for tensor in (result.state[name] for name in result.forward.weight_names):
            tensor.mul_(1.25)
            tensor.copy_(
                tensor.to(torch.bfloat16).float()
            )  # so that a half-precision file can hold the same values
        ours = result(*(array_to_torch(f) for f in feeds.values()))
    written = result.file.model.with_weights(to_file_weights(*result)).to_proto()
    if not result.notes:
        assert make_skeleton(written) == make_skeleton(model)
    assert [o.name for o in written.graph.output] == [o.name for o in model.graph.output]
    assert written.metadata_props == model.metadata_props
    theirs = run_onnxruntime(written, feeds)
    assert (
        max(compare_outputs(a, b).relative for a, b in zip(ours, theirs, strict=True)) <= tolerance
    )
    return written


def make_skeleton(model: ModelProto) -> list[object]:
    """Return everything of a model except the values of its tensors."""
    graph = model.graph
    return [
        [_without_values(n) for n in graph.node],
        [(t.name, t.data_type, list(t.dims)) for t in graph.initializer],
        [v.SerializeToString() for v in (*graph.input, *graph.output, *graph.value_info)],
        [f.SerializeToString() for f in model.functions],
        model.ir_version,
        model.producer_name,
        [(o.domain, o.version) for o in model.opset_import],
    ]


def _without_values(node: NodeProto) -> bytes:
    copy = NodeProto.FromString(node.SerializeToString())
    if copy.op_type == "Constant":
        for attribute in copy.attribute:
            attribute.t.ClearField("raw_data")
            attribute.t.ClearField("float_data")
    return copy.SerializeToString(deterministic=True)


def is_same(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a, b))
