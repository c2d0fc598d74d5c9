"""The graphs that files are written of, one module each; pipeline/formats.py lists their names."""

from importlib import import_module

from ltp_pipeline.exporters.graphs.graph import BuiltGraph, ExportGraph
from ltp_pipeline.settings import file_names

GRAPHS: dict[str, ExportGraph] = {
    name: import_module(f"{__name__}.{name}").GRAPH for name in file_names.GRAPHS
}

__all__ = ["GRAPHS", "BuiltGraph", "ExportGraph"]
