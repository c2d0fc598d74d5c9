"""Can a model be imported? The one answer, for `inspect` and `run` alike; needs no torch."""

from onnx import ModelProto, defs

from ltp_pipeline.graph.schemas import get_standard_opset
from ltp_pipeline.stages.import_model import unsupported
from ltp_pipeline.stages.import_model.node_problems import node_problems

OLDEST_OPSET = 7


def find_problems(model: ModelProto) -> list[str]:
    """Every reason why a model cannot be imported, one line each; none where it can.

    Give the model with its functions written out, as `flatten` leaves it.
    """
    return [*unsupported.find_inherent_problems(model), *node_problems(model)]


def find_opset_problem(model: ModelProto) -> str | None:
    """Why a model's opset is not supported, if so; what its nodes mean is unknown then."""
    opset, newest = get_standard_opset(model), defs.onnx_opset_version()
    if OLDEST_OPSET <= opset <= newest:
        return None
    return f"the model uses opset {opset}; opsets {OLDEST_OPSET} to {newest} are supported"
