"""The graphs that files are written of, one module each, by the names in settings/file_names.py."""

from importlib import import_module

from ltp_pipeline.exporters.graphs.graph import BuiltGraph, ExportGraph, GraphContext
from ltp_pipeline.settings import file_names

GRAPHS: dict[str, ExportGraph] = {
    name: import_module(f"{__name__}.{name}").GRAPH for name in file_names.GRAPHS
}

__all__ = ["GRAPHS", "BuiltGraph", "ExportGraph", "GraphContext"]
