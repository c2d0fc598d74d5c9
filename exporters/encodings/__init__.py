"""The encodings of files, one module each, by the names that settings/file_names.py lists."""

from importlib import import_module

from ltp_pipeline.exporters.encodings.encoding import Encoding
from ltp_pipeline.settings import file_names

ENCODINGS: dict[str, Encoding] = {
    name: import_module(f"{__name__}.{name}").ENCODING for name in file_names.ENCODINGS
}

__all__ = ["ENCODINGS", "Encoding"]
