"""Float weights are counted equally in every encoding."""

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files.count import iter_float_weights
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.sparsity import Sparsity
from ltp_pipeline.graph.storage import read_model, write_model
from tests.support.models import Graph, branch, conv_bn_classifier

KERNELS = ["conv1.weight", "conv2.weight", "fc.weight"]


def pruned(model: ModelProto) -> ModelProto:
    """Nine in ten weights of each kernel zero."""
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.name in KERNELS:
            array = numpy_helper.to_array(tensor) * (rng.random(tuple(tensor.dims)) < 0.1)
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), tensor.name))
    return model


def by_hand(model: ModelProto) -> Sparsity:
    arrays = [numpy_helper.to_array(t) for t in model.graph.initializer]
    return Sparsity(sum(a.size for a in arrays), sum(int((a != 0).sum()) for a in arrays))


@pytest.mark.parametrize("name", ENCODINGS)
def test_iter_float_weights_counts_same_in_every_encoding(tmp_path: Path, name: str) -> None:
    model = pruned(conv_bn_classifier(channels=24))
    write_model(
        ENCODINGS[name].encode(OnnxModel.from_proto(model), KERNELS), tmp_path / "model.onnx"
    )
    result = list(iter_float_weights(read_model(tmp_path / "model.onnx")))
    assert {n for n, _ in result} == {t.name for t in model.graph.initializer}
    assert Sparsity.combine(counted for _, counted in result) == by_hand(model)
    assert by_hand(model).nonzeros < by_hand(model).elements / 4


def test_iter_float_weights_skips_integers_and_masks() -> None:
    g = Graph()
    g.tensor("ids", [1, 2], np.int64)
    g.tensor("mask", [[0.0, -np.inf]])
    g.tensor("large", np.full(70_000, 1.0), np.float16)  # whose sum is not finite
    g.constant("yes", True, np.bool_)
    g.add(
        "If",
        "yes",
        outputs=["k"],
        then_branch=branch("t", "wt", 1),
        else_branch=branch("e", "we", 2),
    )
    result = dict(iter_float_weights(OnnxModel.from_proto(g.model({"x": ("N", 6)}, ["k"]))))
    assert {"large", "wt", "we"} <= result.keys()
    assert not {"ids", "mask", "yes"} & result.keys()
    assert result["large"] == Sparsity(70_000, 70_000)


def test_iter_float_weights_counts_replaced_weights() -> None:
    zero = {"fc.weight": np.zeros((5, 8), np.float32)}
    model = OnnxModel.from_proto(conv_bn_classifier()).with_weights(zero)
    assert dict(iter_float_weights(model))["fc.weight"] == Sparsity(40, 0)
