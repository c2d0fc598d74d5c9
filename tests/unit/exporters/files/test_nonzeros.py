"""A nonzero index changes no byte of a file."""

import numpy as np
import pytest

from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.exporters.files.labels import write_metadata
from ltp_pipeline.exporters.files.nonzeros import NonzeroIndex
from ltp_pipeline.exporters.files.read_back import verify_weights
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import write_model
from tests.support.encoded import identities
from tests.support.encoded import model_of as described_model
from tests.support.models import sparse_array


def model_of(arrays, constant=None):
    return OnnxModel.from_proto(identities(arrays, constant))


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


@pytest.mark.parametrize("format_", ENCODINGS)
@pytest.mark.parametrize("has_weights", [False, True])
def test_encode_with_index_writes_same_bytes_as_with_names(tmp_path, format_, has_weights):
    arrays = arrays_of_all_sorts()
    proto = identities(arrays, constant="held")
    before = proto.SerializeToString()
    model = OnnxModel.from_proto(proto).with_weights(arrays if has_weights else {})
    expected = write_metadata(
        ENCODINGS[format_].encode(model, list(arrays)), format=format_
    ).to_proto()
    scan = NonzeroIndex(model, arrays)
    for name in (*ENCODINGS, format_):  # every format fills the scan differently
        encoded = ENCODINGS[name].encode(model, scan)
    encoded = write_metadata(encoded, format=format_)
    write_model(encoded, tmp_path / "encoded.onnx")
    assert (tmp_path / "encoded.onnx").read_bytes() == expected.SerializeToString(
        deterministic=True
    )
    verify_weights(tmp_path / "encoded.onnx", arrays, format_)
    assert encoded.to_proto().SerializeToString(deterministic=True) == expected.SerializeToString(
        deterministic=True
    )
    assert model.to_proto().SerializeToString() == proto.SerializeToString() == before


@pytest.mark.parametrize("values", ["fp16", "int8"])
def test_encode_rounded_with_index_writes_same_bytes(tmp_path, values):
    arrays = arrays_of_all_sorts()
    model = model_of(arrays)
    expected = ENCODINGS["packed"].encode(model, list(arrays), storage=values).to_proto()
    write_model(
        ENCODINGS["packed"].encode(model, NonzeroIndex(model, arrays), storage=values),
        tmp_path / "m.onnx",
    )
    assert (tmp_path / "m.onnx").read_bytes() == expected.SerializeToString(deterministic=True)


@pytest.mark.parametrize("format_", ENCODINGS)
def test_encode_with_external_data_is_verified(tmp_path, format_):
    arrays = {"large": sparse_array((256, 64, 3, 3), 0.1)}
    model = model_of(arrays)
    write_model(ENCODINGS[format_].encode(model, list(arrays)), tmp_path / "m.onnx", external=True)
    verify_weights(tmp_path / "m.onnx", arrays, format_)
    assert (tmp_path / "m.onnx.data").exists() == (format_ != "sparse")


def test_encode_converts_arrays_to_tensor_type():
    arrays = {"half": sparse_array((64, 64), 0.1, 1, np.float16)}
    model = model_of(arrays).with_weights({"half": arrays["half"].astype(np.float32)})
    encoded = ENCODINGS["sparse"].encode(model, NonzeroIndex(model, arrays))
    verify_weights(encoded, arrays, "sparse")


def test_encode_ignores_index_of_other_model():
    first, second = ({"w": sparse_array((64, 64), 0.1, seed)} for seed in (1, 2))
    scan = NonzeroIndex(model_of(first), first)
    ENCODINGS["sparse"].encode(scan.model, scan)
    for format_ in ENCODINGS.values():
        verify_weights(format_.encode(model_of(second), scan), second, format_.name)
    assert list(scan) == ["w"]
    assert len(scan) == 1


def test_encode_replaces_negative_zeros_of_layer_weights_only():
    array = np.full((64, 64), -0.0, np.float32)
    array[0, 0] = 1
    model = described_model(array).with_weights({"other": np.float32([-0.0])})
    for encoding in ENCODINGS.values():
        weights = read_tensors(encoding.encode(model, ["w"]), ["w", "other"])
        assert not np.signbit(weights["w"]).any()
        assert np.signbit(weights["other"]).all()
    assert np.signbit(model.get_array("w")).any()
