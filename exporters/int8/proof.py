"""Proof that a quantised graph holds the weights it was made of, in 8 bits, and that zeros are zeros."""

from collections.abc import Collection, Mapping

import numpy as np
from onnx import TensorProto

from ltp_pipeline.errors import ExportFailed
from ltp_pipeline.exporters.int8.dynamic import LARGEST_STEPS
from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX, SKIP_HINT, QuantizableLayer
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.system.arrays import Array

ROUNDING_LIMIT = 0.5 + 1e-3  # of a step: what rounding may change
BUG_HINT = f"{SKIP_HINT}, and please report this as a bug"


def verify_int8_weights(
    model: OnnxModel,
    weights: Weights,
    weight_names: Collection[str],
    layers: Mapping[str, QuantizableLayer],
    bits: int,
) -> dict[str, Array]:
    """What the kernels have become, by the names of the tensors that hold them now; ExportFailed unless it is right."""
    held: dict[str, Array] = {}
    for kernel in weight_names:
        layer, name = layers.get(kernel), kernel + QUANTIZED_SUFFIX
        if layer is None:
            if (
                kernel not in model.tensors
                or model.get_array(kernel).tobytes() != weights[kernel].tobytes()
            ):
                raise ExportFailed(
                    f"kernel '{kernel}' was to stay float, and is not there as it was", BUG_HINT
                )
            held[kernel] = model.get_array(kernel)
            continue
        if name not in model.tensors or model.tensors[name].data_type != TensorProto.INT8:
            raise ExportFailed(f"kernel '{kernel}' was not quantised", BUG_HINT)
        held[name] = _check_weight(
            kernel, model.get_array(name), weights[kernel], _read_scale(model, layer), bits
        )
    return held


def _read_scale(model: OnnxModel, layer: QuantizableLayer) -> Array:
    shape = [1] * model.get_array(layer.weight_name + QUANTIZED_SUFFIX).ndim
    shape[layer.axis] = -1
    return model.get_array(f"{layer.weight_name}_scale").reshape(shape).astype(np.float64)


def _check_weight(weight_name: str, steps: Array, weight: Array, scale: Array, bits: int) -> Array:
    if steps.shape != weight.shape:
        raise ExportFailed(f"kernel '{weight_name}' has another shape in 8 bits", BUG_HINT)
    if (steps[weight == 0] != 0).any():
        raise ExportFailed(
            f"kernel '{weight_name}' has weights in 8 bits where it had zeros", BUG_HINT
        )
    if np.abs(steps.astype(np.int64)).max(initial=0) > LARGEST_STEPS[bits]:
        raise ExportFailed(f"kernel '{weight_name}' has weights of more than {bits} bits", BUG_HINT)
    if (np.abs(steps * scale - weight) > ROUNDING_LIMIT * scale).any():
        raise ExportFailed(
            f"kernel '{weight_name}' in 8 bits is not the kernel in steps of its scale", BUG_HINT
        )
    return steps
