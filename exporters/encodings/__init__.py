"""The encodings, one module each; pipeline/formats.py lists their names."""

from importlib import import_module

from ltp_pipeline import formats
from ltp_pipeline.exporters.encodings.encoding import Encoding

ENCODINGS: dict[str, Encoding] = {name: import_module(f"{__name__}.{name}").ENCODING for name in formats.ENCODINGS}

__all__ = ["ENCODINGS", "Encoding"]
