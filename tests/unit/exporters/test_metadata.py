"""What files say of themselves."""

from ltp_pipeline import exporters
from tests.support.encoded import described
from tests.support.models import sparse_array


def test_stamping_twice_replaces():
    model = described(sparse_array())
    exporters.stamp(model, format="dense")
    exporters.stamp(model, format="packed")
    assert exporters.labels(model) == {"format": "packed"}
