"""Scans of models."""

from ltp_pipeline import exporters
from tests.support.encoded import identities
from tests.support.models import sparse_array


def test_the_scan_of_another_model_is_not_taken():
    first, second = ({"w": sparse_array((64, 64), 0.1, seed)} for seed in (1, 2))
    scan = exporters.Scan(identities(first), first)
    exporters.ENCODINGS["sparse"].encode(scan.model, scan)
    for format_ in exporters.ENCODINGS.values():
        exporters.verify(format_.encode(identities(second), scan), second, format_.name)
    assert list(scan) == ["w"]
    assert len(scan) == 1
