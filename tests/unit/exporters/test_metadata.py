"""What files say of themselves."""

from ltp_pipeline import exporters
from tests.support.encoded import model_of
from tests.support.models import sparse_array


def test_stamping_twice_replaces():
    model = model_of(sparse_array())
    stamped = exporters.stamp(exporters.stamp(model, format="dense"), format="packed")
    assert exporters.labels(stamped) == {"format": "packed"}
    assert exporters.labels(model) == {}
