"""Models are adapted to onnxruntime's quantization tool."""

from onnx import helper

from ltp_pipeline.exporters.int8 import static
from ltp_pipeline.graph.model import OnnxModel
from tests.support.models import mlp


def test_declare_float_values_removes_double_opset_import() -> None:
    proto = mlp()
    versions = [(entry.domain, entry.version) for entry in proto.opset_import]
    proto.opset_import.append(helper.make_opsetid("ai.onnx", proto.opset_import[0].version))
    declared = static._declare_float_values(OnnxModel.from_proto(proto), ())
    assert [(entry.domain, entry.version) for entry in declared.opset_import] == versions
