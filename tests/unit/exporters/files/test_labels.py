"""Labels of files."""

from ltp_pipeline.exporters.files.labels import read_metadata, write_metadata
from tests.support.encoded import model_of
from tests.support.models import sparse_array


def test_write_metadata_twice_replaces_label():
    model = model_of(sparse_array())
    stamped = write_metadata(write_metadata(model, format="dense"), format="packed")
    assert read_metadata(stamped) == {"format": "packed"}
    assert read_metadata(model) == {}
