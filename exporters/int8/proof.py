"""Verify that a quantized graph holds the weights it was made of, and their zeros."""

from collections.abc import Collection, Mapping

import numpy as np
from onnx import TensorProto

from ltp_pipeline.errors import ExportFailed
from ltp_pipeline.exporters.int8.dynamic import LARGEST_STEPS
from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX, SKIP_HINT, QuantizableLayer
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.system.arrays import Array

ROUNDING_LIMIT = 0.5 + 1e-3  # largest rounding error, in steps of the scale
BUG_HINT = f"{SKIP_HINT}, and please report this as a bug"


def verify_int8_weights(
    model: OnnxModel,
    weights: Weights,
    weight_names: Collection[str],
    layers: Mapping[str, QuantizableLayer],
    bits: int,
) -> dict[str, Array]:
    """Verify the layer weights of a quantized graph.

    Returns:
        The layer weights by the names of the tensors that hold them now.

    Raises:
        ExportFailed: If a layer weight is missing, has other zeros, or is not rounded as it should.
    """
    stored: dict[str, Array] = {}
    for name in weight_names:
        weight = weights[name]
        layer = layers.get(name)
        if layer is None:
            if name not in model.tensors or model.get_array(name).tobytes() != weight.tobytes():
                raise ExportFailed(
                    f"layer weight '{name}' should stay float, but changed", BUG_HINT
                )
            stored[name] = model.get_array(name)
            continue
        int8_name = name + QUANTIZED_SUFFIX
        tensor = model.tensors.get(int8_name, TensorProto())
        if tensor.data_type != TensorProto.INT8:
            raise ExportFailed(f"layer weight '{name}' was not quantized", BUG_HINT)
        steps = model.get_array(int8_name)
        if steps.shape != weight.shape:
            raise ExportFailed(f"layer weight '{name}' has another shape in 8 bits", BUG_HINT)
        problem = _find_problem(steps, weight, _read_scale(model, layer), bits)
        if problem is not None:
            raise ExportFailed(f"layer weight '{name}' {problem}", BUG_HINT)
        stored[int8_name] = steps
    return stored


def _read_scale(model: OnnxModel, layer: QuantizableLayer) -> Array:
    """Return the scale of a quantized weight in a shape that broadcasts over the weight."""
    shape = [1] * model.get_array(layer.weight_name + QUANTIZED_SUFFIX).ndim
    shape[layer.axis] = -1
    return model.get_array(f"{layer.weight_name}_scale").reshape(shape).astype(np.float64)


def _find_problem(steps: Array, weight: Array, scale: Array, bits: int) -> str | None:
    """Return what is wrong with a quantized weight, or None."""
    if (steps[weight == 0] != 0).any():
        return "is not zero in 8 bits where it was zero"
    if np.abs(steps.astype(np.int64)).max(initial=0) > LARGEST_STEPS[bits]:
        return f"has values of more than {bits} bits"
    if (np.abs(steps * scale - weight) > ROUNDING_LIMIT * scale).any():
        return "is not rounded to the nearest step of its scale in 8 bits"
    return None
