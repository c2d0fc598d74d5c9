"""Quantized layers that onnxruntime would run in float."""

from collections.abc import Sequence

from ltp_pipeline.exporters.files.run_proof import EXTENDED_OPTIMIZATIONS, optimize_model
from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX, SKIP_HINT, QuantizableLayer
from ltp_pipeline.graph.model import OnnxModel

REASON = "is not run in 8 bits by onnxruntime"


def find_unfused_layers(
    model: OnnxModel, layers: Sequence[QuantizableLayer]
) -> list[QuantizableLayer]:
    """Return the layers whose weights onnxruntime would convert to float at every run."""
    graph = optimize_model(model, EXTENDED_OPTIMIZATIONS, SKIP_HINT)
    dequantized = {node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    return [layer for layer in layers if layer.weight_name + QUANTIZED_SUFFIX in dequantized]
