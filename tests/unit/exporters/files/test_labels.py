"""What files say of themselves."""

from ltp_pipeline.exporters.files.labels import labels, stamp
from tests.support.encoded import model_of
from tests.support.models import sparse_array


def test_stamping_twice_replaces():
    model = model_of(sparse_array())
    stamped = stamp(stamp(model, format="dense"), format="packed")
    assert labels(stamped) == {"format": "packed"}
    assert labels(model) == {}
