"""Values that contradict what the file declares, or are larger than the memory, are refused before anything runs."""

import numpy as np
import pytest

from ltp_pipeline.errors import InputError, UnsupportedModel
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.stages.import_model.value_sizes import check_declared_types, require_room
from ltp_pipeline.system import memory
from tests.support.models import Graph, conv_bn_classifier, mlp
from tests.support.sequence_models import fused_attention


def padded(pads: int) -> OnnxModel:
    g = Graph()
    y = g.conv("x", "wide", 3, 4, pads=[pads] * 4)
    g.add("ReduceMean", y, axes=[2, 3], outputs=["y"])
    return OnnxModel.from_proto(g.model({"x": ("N", 3, "H", "W")}, ["y"]))


def test_a_conv_that_no_memory_holds_is_refused_by_name_with_the_sizes() -> None:
    with pytest.raises(UnsupportedModel, match=r"Conv 'wide'.* GB, and .* GB are free"):
        require_room(padded(1_000_000))


def test_sizes_that_only_the_samples_tell_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 4 * 4 * 32 * 32)
    require_room(padded(1), {"x": np.zeros((2, 3, 32, 32), np.float32)})
    with pytest.raises(UnsupportedModel, match="Conv 'wide'"):
        require_room(padded(1), {"x": np.zeros((2, 3, 33, 32), np.float32)})


def test_where_the_memory_is_not_known_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    require_room(padded(1_000_000))


def test_an_output_that_is_declared_otherwise_is_refused() -> None:
    model = mlp()
    check_declared_types(OnnxModel.from_proto(model))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 77
    with pytest.raises(InputError, match="77"):
        check_declared_types(OnnxModel.from_proto(model))


@pytest.mark.parametrize("make", [conv_bn_classifier, fused_attention])
def test_what_onnxruntime_reads_is_not_refused(make) -> None:
    check_declared_types(OnnxModel.from_proto(make()))
