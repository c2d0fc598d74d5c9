"""Bits and zeros of tensors."""

import numpy as np

from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files.decode import read_tensors
from tests.support.encoded import model_of


def test_negative_zero_becomes_zero_in_kernels_only():
    array = np.full((64, 64), -0.0, np.float32)
    array[0, 0] = 1
    model = model_of(array).with_weights({"other": np.float32([-0.0])})
    for format_ in ENCODINGS.values():
        found = read_tensors(format_.encode(model, ["w"]), ["w", "other"])
        assert not np.signbit(found["w"]).any()
        assert np.signbit(found["other"]).all()
    assert np.signbit(model.get_array("w")).any()
