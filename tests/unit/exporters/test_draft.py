"""Drafts and scans: the same bytes as encoding first and kernel by kernel, in less time."""

import numpy as np
import pytest

from ltp_pipeline import exporters
from tests.support.encoded import identities
from tests.support.models import sparse_array


def arrays_of_all_sorts():
    arrays = {
        "large": sparse_array((256, 64, 3, 3), 0.1),
        "half": sparse_array((256, 64, 3, 3), 0.05, 1, np.float16),
        "small": sparse_array((8, 8), 0.1),
        "full": sparse_array((256, 128), 1.0),
        "negative": sparse_array((256, 128), 0.1),
        "held": sparse_array((256, 128), 0.1, 2),
    }
    arrays["negative"][arrays["negative"] == 0] = -0.0
    return arrays


@pytest.mark.parametrize("format_", exporters.ENCODINGS)
@pytest.mark.parametrize("given", [False, True])
def test_a_draft_is_saved_as_the_same_bytes(tmp_path, format_, given):
    arrays = arrays_of_all_sorts()
    model = identities(arrays, constant="held")
    before = model.SerializeToString()
    expected = exporters.ENCODINGS[format_].encode(model, list(arrays))
    scan = exporters.Scan(model, arrays, arrays if given else {})
    for name in (*exporters.ENCODINGS, format_):  # every format fills the scan differently
        draft = exporters.ENCODINGS[name].draft(model, scan)
    exporters.stamp(draft.model, format=format_)
    exporters.stamp(expected, format=format_)
    exporters.save(draft, tmp_path / "draft.onnx")
    assert (tmp_path / "draft.onnx").read_bytes() == expected.SerializeToString(deterministic=True)
    exporters.verify(tmp_path / "draft.onnx", arrays, format_)
    assert draft.filled().SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)
    assert model.SerializeToString() == before


@pytest.mark.parametrize("values", ["fp16", "int8"])
def test_a_draft_with_rounded_values(tmp_path, values):
    arrays = arrays_of_all_sorts()
    model = identities(arrays)
    expected = exporters.ENCODINGS["packed"].encode(model, list(arrays), values=values)
    draft = exporters.ENCODINGS["packed"].draft(model, exporters.Scan(model, arrays, arrays), values=values)
    exporters.save(draft, tmp_path / "draft.onnx")
    assert (tmp_path / "draft.onnx").read_bytes() == expected.SerializeToString(deterministic=True)


@pytest.mark.parametrize("format_", exporters.ENCODINGS)
def test_a_draft_of_a_model_with_external_data(tmp_path, format_):
    arrays = {"large": sparse_array((256, 64, 3, 3), 0.1)}
    model = identities(arrays)
    exporters.save(exporters.ENCODINGS[format_].draft(model, list(arrays)), tmp_path / "m.onnx", external=True)
    exporters.verify(tmp_path / "m.onnx", arrays, format_)
    assert (tmp_path / "m.onnx.data").exists() == (format_ != "sparse")


def test_arrays_of_another_type_than_the_tensors_are_not_taken():
    arrays = {"half": sparse_array((64, 64), 0.1, 1, np.float16)}
    model = identities(arrays)
    wide = {"half": arrays["half"].astype(np.float32)}
    encoded = exporters.ENCODINGS["sparse"].encode(model, exporters.Scan(model, wide, wide))
    exporters.verify(encoded, arrays, "sparse")
