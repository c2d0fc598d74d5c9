"""Rounded values of packed files."""

from functools import partial

import numpy as np
import onnx
import pytest

from ltp_pipeline.errors import ExportFailed
from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.exporters.files.labels import read_metadata
from ltp_pipeline.graph.model import OnnxModel
from tests.support.encoded import (
    LEVELS,
    encode_as,
    model_and_kernels,
    run_model,
    to_dense,
    verify_as,
)

encode, verify = partial(encode_as, "packed"), partial(verify_as, "packed")


@pytest.mark.parametrize("values", ["fp16", "int8"])
@pytest.mark.parametrize("density", [0.05, 0.6])
def test_encode_rounded_is_smaller_labeled_and_folded(tmp_path, values, density):
    model, kernels = model_and_kernels(density, shape=(64, 32, 3, 3))
    encoded = encode(model, kernels, storage=values)
    assert read_metadata(OnnxModel.from_proto(encoded))["values"] == values
    assert encoded.ByteSize() < encode(model, kernels).ByteSize()
    onnx.checker.check_model(encoded, full_check=True)
    restored = to_dense(encoded)
    assert run_model(encoded, LEVELS[1], tmp_path) == run_model(restored, LEVELS[1])
    assert [n.op_type for n in onnx.load(tmp_path / "optimized.onnx").graph.node] == [
        "Conv",
        "Conv",
    ]
    for name, array in read_tensors(OnnxModel.from_proto(encoded), kernels).items():
        expected = kernels[name]
        assert not array[expected == 0].any()
        if values == "fp16":
            assert (array == expected.astype(np.float16)).all()
        else:
            steps = np.abs(expected).max(axis=(1, 2, 3), keepdims=True) / 127
            assert (np.abs(array - expected) <= 0.5001 * steps).all()
    with pytest.raises(ExportFailed, match=r"a\.weight"):
        verify(encoded, kernels)


def test_encode_rounded_keeps_overflowing_tensor_exact():
    model, kernels = model_and_kernels(0.05)
    kernels["a.weight"][0, 0, 0, 0] = 1e6
    encoded = encode(
        OnnxModel.from_proto(model).with_weights(kernels).to_proto(), kernels, storage="fp16"
    )
    result = read_tensors(OnnxModel.from_proto(encoded), kernels)
    assert (result["a.weight"] == kernels["a.weight"]).all()
    assert (result["b.weight"] == kernels["b.weight"].astype(np.float16)).all()
