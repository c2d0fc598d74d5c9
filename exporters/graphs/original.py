"""The original graph: names, order, opset and metadata are those of the model that was given."""

from collections.abc import Collection

from ltp_pipeline.exporters.graphs.graph import BuiltGraph, ExportGraph
from ltp_pipeline.exporters.int8.calibration import Calibration
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.settings.schema import ExportSettings


def build_graph(
    model: OnnxModel,
    weights: Weights,
    weight_names: Collection[str],
    feeds: Weights,
    calibration: Calibration | None = None,
    settings: ExportSettings | None = None,
) -> BuiltGraph:
    """The model as it is; its files must hold all weights."""
    del weight_names, feeds, calibration, settings
    return BuiltGraph(model, weights)


GRAPH = ExportGraph(name="original", description="", build=build_graph)
