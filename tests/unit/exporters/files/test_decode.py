"""Tensors are read from files of any encoding."""

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.graph.model import OnnxModel
from tests.support.encoded import make_described
from tests.support.models import sparse_array


def test_read_tensors_with_wrong_dims_raises_input_error():
    proto = make_described(sparse_array())
    proto.graph.initializer[0].raw_data = b"\0" * 10
    model = OnnxModel.from_proto(proto)
    with pytest.raises(InputError, match="'w'"):
        read_tensors(model, ["w"])
    with pytest.raises(InputError, match="'w'"):
        ENCODINGS["sparse"].encode(model, ["w"])
