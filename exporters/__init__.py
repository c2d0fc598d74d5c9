"""Files of a pruned model: how they are written, read back and proven.

A file is a graph (graphs/) in an encoding (encodings/); pipeline/formats.py has the names of both.
"""

from ltp_pipeline.exporters.decoding import read_tensors, to_dense
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.metadata import labels, stamp
from ltp_pipeline.exporters.readback import verify
from ltp_pipeline.exporters.scan import Scan
from ltp_pipeline.exporters.weights import float_weights

__all__ = [
    "ENCODINGS",
    "Scan",
    "float_weights",
    "labels",
    "read_tensors",
    "stamp",
    "to_dense",
    "verify",
]
