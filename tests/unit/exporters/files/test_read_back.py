"""Files are compared with the weights that they must hold."""

from functools import partial

import numpy as np
import pytest

from ltp_pipeline.errors import ExportFailed
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files import read_back
from ltp_pipeline.exporters.files.nonzeros import view_bits
from ltp_pipeline.graph.model import OnnxModel
from tests.support.encoded import encode_as, matmul, model_of, verify_as
from tests.support.models import sparse_array


def test_verify_weights_accepts_special_values():
    array = sparse_array()
    array[0, :4] = [np.inf, -np.inf, np.float32(1e-42), np.nan]
    view_bits(array)[0, 4] = 0x7FC12345
    model = model_of(array)
    for format_ in ENCODINGS.values():
        encoded = format_.encode(model, ["w"])
        read_back.verify_weights(encoded, {"w": array}, format_.name)


encode, verify = partial(encode_as, "sparse"), partial(verify_as, "sparse")


def test_verify_weights_rejects_other_bits():
    array = sparse_array((64, 32), 0.1)
    encoded = encode(matmul(array), ["w"])
    other = array.copy()
    other[other != 0] = np.nextafter(other[other != 0], np.float32(9))
    with pytest.raises(ExportFailed, match="'w'"):
        verify(encoded, {"w": other})
    with pytest.raises(ExportFailed, match=r"'w'.*\(32, 64\).*\(64, 32\)"):
        verify(encoded, {"w": array.T})
    with pytest.raises(ExportFailed, match="'v'"):
        verify(encoded, {"v": array})
    verify(encoded, {"w": np.where(array == 0, np.float32(-0.0), array)})


def test_verify_weights_rejects_invalid_onnx():
    model = matmul(sparse_array((64, 32), 0.1))
    model.graph.node[0].op_type = "NoSuchOp"
    with pytest.raises(ExportFailed, match="NoSuchOp"):
        read_back.verify_weights(
            OnnxModel.from_proto(model), {"w": sparse_array((64, 32), 0.1)}, "dense"
        )
