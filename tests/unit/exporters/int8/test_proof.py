"""Quantized weights that differ from the float network are rejected."""

from dataclasses import replace

import numpy as np
import pytest

from ltp_pipeline.errors import ExportFailed
from ltp_pipeline.exporters.int8 import proof
from ltp_pipeline.exporters.int8.dynamic import quantize_dynamic
from ltp_pipeline.exporters.int8.layers import find_quantizable_layers
from ltp_pipeline.exporters.int8.names import name_nodes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.tensors import make_tensor
from ltp_pipeline.system.arrays import Array
from tests.support.models import mlp, prune

KERNELS = ["fc1.weight", "fc2.weight"]


def changed(model: OnnxModel, name: str, array: Array) -> OnnxModel:
    """The model with other integers in one tensor."""
    proto = copy_proto(model.proto)
    tensor = next(t for t in proto.graph.initializer if t.name == name)
    tensor.CopyFrom(make_tensor(name, tensor.data_type, array))
    return replace(model, proto=proto)


def check(
    name: str = "fc1.weight_quantized", by: dict[tuple[int, int], int] | None = None, bits: int = 7
) -> None:
    model = name_nodes(OnnxModel.from_proto(prune(mlp(), 0.5)))
    layers = find_quantizable_layers(model, KERNELS).layers
    built = quantize_dynamic(model, layers, 7)
    steps = built.get_array(name).copy()
    for at, value in (by or {}).items():
        steps[at] = value
    weights = {kernel: model.get_array(kernel) for kernel in KERNELS}
    proof.verify_int8_weights(
        changed(built, name, steps),
        weights,
        KERNELS,
        {layer.weight_name: layer for layer in layers},
        bits,
    )


def place(zero: bool) -> tuple[int, int]:
    weight = OnnxModel.from_proto(prune(mlp(), 0.5)).get_array("fc1.weight")
    result = np.argwhere((weight == 0) if zero else (weight != 0))[0]
    return int(result[0]), int(result[1])


def test_verify_int8_weights_accepts_quantized_graph() -> None:
    check()


def test_verify_int8_weights_rejects_lost_zero() -> None:
    with pytest.raises(ExportFailed, match=r"'fc1\.weight'.*\bzero\b"):
        check(by={place(zero=True): 1})


def test_verify_int8_weights_rejects_value_of_more_bits() -> None:
    with pytest.raises(ExportFailed, match=r"'fc1\.weight'.*\b7 bits\b"):
        check(by={place(zero=False): 65})


def test_verify_int8_weights_rejects_other_value() -> None:
    model = OnnxModel.from_proto(prune(mlp(), 0.5))
    at = place(zero=False)
    wrong = -1 if model.get_array("fc1.weight")[at] > 0 else 1
    with pytest.raises(ExportFailed, match=r"'fc1\.weight'.*\brounded\b"):
        check(by={at: wrong})


def test_verify_int8_weights_rejects_missing_float_weight() -> None:
    model = name_nodes(OnnxModel.from_proto(mlp()))
    layers = find_quantizable_layers(model, KERNELS).layers
    weights = {kernel: model.get_array(kernel) for kernel in KERNELS}
    with pytest.raises(ExportFailed, match=r"'fc1\.weight'.*\bfloat\b"):
        proof.verify_int8_weights(quantize_dynamic(model, layers, 7), weights, KERNELS, {}, 7)
