"""The original graph: names, order, opset and metadata are those of the input model."""

from ltp_pipeline.exporters.graphs.graph import BuiltGraph, ExportGraph, GraphContext


def build_graph(context: GraphContext) -> BuiltGraph:
    """Return the model unchanged; its files must hold all weights."""
    return BuiltGraph(context.model, context.weights)


GRAPH = ExportGraph(name="original", description="", build=build_graph)
