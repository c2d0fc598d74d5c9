"""Which quantised layers onnxruntime runs in 8 bits: those whose weights it does not turn back to float."""

from collections.abc import Sequence

import onnx

from ltp_pipeline.errors import ExportFailed, summarize_error
from ltp_pipeline.exporters.files.run_proof import PROVIDER
from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX, SKIP_HINT, QuantizableLayer
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.system.scratch import temporary_folder

REASON = "onnxruntime does not run it in 8 bits"


def find_unfused_layers(
    model: OnnxModel, layers: Sequence[QuantizableLayer]
) -> list[QuantizableLayer]:
    """The layers whose weights onnxruntime would turn to float at every run."""
    import onnxruntime

    with temporary_folder("quantize") as folder:
        path, optimised = folder / "model.onnx", folder / "optimised.onnx"
        write_model(model, path)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(optimised)
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", "weights.bin"
        )
        try:
            onnxruntime.InferenceSession(str(path), options, providers=[PROVIDER])
        except Exception as error:  # noqa: BLE001 (onnxruntime's errors have no common root)
            reason = summarize_error(error)
            raise ExportFailed(
                f"onnxruntime cannot load the int8 model: {reason}", SKIP_HINT
            ) from None
        graph = onnx.load(optimised, load_external_data=False).graph
    floats = {node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    return [layer for layer in layers if layer.weight_name + QUANTIZED_SUFFIX in floats]
