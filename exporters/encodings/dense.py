"""The dense encoding: every weight is written out, for tools that know no sparse format."""

from collections.abc import Collection

from ltp_pipeline.exporters.encodings.encoding import Encoding
from ltp_pipeline.exporters.files.nonzeros import NonzeroIndex
from ltp_pipeline.graph.model import OnnxModel


def encode(model: OnnxModel, weight_names: Collection[str]) -> OnnxModel:
    """Return the model with 0.0 for every -0.0 in its layer weights."""
    return NonzeroIndex.from_names(model, weight_names).replace_negative_zeros(model)


ENCODING = Encoding(
    name="dense", description="zeros written out; every tool reads it", encode=encode
)
