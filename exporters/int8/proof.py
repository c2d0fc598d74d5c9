"""Proof that a quantised graph holds the weights it was made of, in 8 bits, and that zeros are zeros."""

from collections.abc import Collection, Mapping

import numpy as np
from onnx import TensorProto

from ltp_pipeline.errors import ExportFailed
from ltp_pipeline.exporters.int8.dynamic import LARGEST
from ltp_pipeline.exporters.int8.layers import LEAVE, SUFFIX, QuantizableLayer
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.system.arrays import Array

HALF = 0.5 + 1e-3  # of a step: what rounding may change
BUG = f"{LEAVE}, and please report this as a bug"


def held_weights(
    model: OnnxModel,
    weights: Weights,
    kernels: Collection[str],
    layers: Mapping[str, QuantizableLayer],
    bits: int,
) -> dict[str, Array]:
    """What the kernels have become, by the names of the tensors that hold them now; ExportFailed unless it is right."""
    held: dict[str, Array] = {}
    for kernel in kernels:
        layer, name = layers.get(kernel), kernel + SUFFIX
        if layer is None:
            if (
                kernel not in model.tensors
                or model.array(kernel).tobytes() != weights[kernel].tobytes()
            ):
                raise ExportFailed(
                    f"kernel '{kernel}' was to stay float, and is not there as it was", BUG
                )
            held[kernel] = model.array(kernel)
            continue
        if name not in model.tensors or model.tensors[name].data_type != TensorProto.INT8:
            raise ExportFailed(f"kernel '{kernel}' was not quantised", BUG)
        held[name] = _checked(
            kernel, model.array(name), weights[kernel], _scale(model, layer), bits
        )
    return held


def _scale(model: OnnxModel, layer: QuantizableLayer) -> Array:
    shape = [1] * model.array(layer.kernel + SUFFIX).ndim
    shape[layer.axis] = -1
    return model.array(f"{layer.kernel}_scale").reshape(shape).astype(np.float64)


def _checked(kernel: str, steps: Array, weight: Array, scale: Array, bits: int) -> Array:
    if steps.shape != weight.shape:
        raise ExportFailed(f"kernel '{kernel}' has another shape in 8 bits", BUG)
    if (steps[weight == 0] != 0).any():
        raise ExportFailed(f"kernel '{kernel}' has weights in 8 bits where it had zeros", BUG)
    if np.abs(steps.astype(np.int64)).max(initial=0) > LARGEST[bits]:
        raise ExportFailed(f"kernel '{kernel}' has weights of more than {bits} bits", BUG)
    if (np.abs(steps * scale - weight) > HALF * scale).any():
        raise ExportFailed(
            f"kernel '{kernel}' in 8 bits is not the kernel in steps of its scale", BUG
        )
    return steps
