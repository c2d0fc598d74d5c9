"""Folded BatchNormalization, restored for training and folded again in the files."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, numpy_helper

import ltp_pipeline
from benchmarks.restore_bn import fold_norms
from ltp_pipeline.settings.schema import PruneSettings
from ltp_pipeline.stages.import_model import restore_batch_norm
from ltp_pipeline.stages.write_back import to_file_weights
from tests.support.imported import import_network
from tests.support.models import Graph, conv_bn_classifier
from tests.support.restored import CPU, import_restored, make_split, run_outputs
from tests.support.samples import only_input


def test_restored_network_computes_the_same_function():
    model = fold_norms(conv_bn_classifier())
    before, after = import_network(model), import_restored(model)
    assert [n.layer_weight for n in after.restored_norms] == ["conv1.weight", "conv2.weight"]
    x = torch.from_numpy(only_input(make_split(1, 8, 8).read_first(64)))
    assert torch.allclose(run_outputs(before, x), run_outputs(after, x), rtol=1e-5, atol=1e-5)
    # The statistics of the batch, in place of the stored ones, give the same function.
    with torch.no_grad():
        assert torch.allclose(
            after(x, training=True)[0], run_outputs(before, x), rtol=1e-3, atol=1e-3
        )
    assert after.layer_weights == before.layer_weights
    assert any("2 folded BatchNormalization restored" in note for note in after.notes)


def test_convs_without_a_folded_norm_stay_as_they_are():
    g = Graph()
    x = g.batch_norm(g.conv("x", "normed", 1, 4, bias=True), "bn", 4)
    x = g.add("Relu", g.conv(x, "folded", 4, 4, bias=True))
    squeezed = g.add("Sigmoid", g.conv(g.add("GlobalAveragePool", x), "excite", 4, 4, 1, bias=True))
    x = g.conv(g.add("Mul", x, squeezed), "plain", 4, 4)
    x = g.add(
        "Add",
        g.conv(x, "tied", 4, 4, bias=True),
        g.add("Conv", x, "tied.weight", "tied.bias", pads=[1] * 4),
    )
    g.add("Identity", g.conv(x, "last", 4, 5, bias=True), outputs=("logits",))
    g.add(
        "Transpose", g.conv(x, "patches", 4, 5, bias=True), outputs=("tokens",), perm=[0, 2, 3, 1]
    )
    network = import_restored(g.model({"x": ("N", 1, 8, 8)}, ["logits", "tokens"]))
    assert [n.layer_weight for n in network.restored_norms] == ["folded.weight"]


def test_run_returns_a_network_without_candidates_unchanged():
    network, state = ltp_pipeline.import_model(conv_bn_classifier())
    assert restore_batch_norm.run(network, state, make_split(1, 8, 8), 16, CPU) == (network, state)


def test_dead_channels_and_excluded_weights_are_restored():
    model = fold_norms(conv_bn_classifier())
    for tensor in model.graph.initializer:
        if tensor.name == "conv1.weight":
            value = numpy_helper.to_array(tensor).copy()
            value[0] = 0
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    network, tensors = result = import_restored(model, kernels=PruneSettings(exclude=("conv1*",)))
    norm = network.restored_norms[0]
    assert norm.layer_weight == "conv1.weight"
    assert tensors[norm.variance][0] == 0
    x = torch.randn(4, 1, 8, 8)
    assert torch.allclose(run_outputs(result, x), run_outputs(import_network(model), x), atol=1e-5)
    assert all(t.isfinite().all() for t in tensors.values())


def test_half_precision_is_restored_and_written_back():
    g = Graph()
    x = g.add(
        "Flatten", g.add("GlobalAveragePool", g.add("Relu", g.conv("x", "conv", 1, 4, bias=True)))
    )
    g.gemm(x, "fc", 4, 3)
    g.nodes[-1].output[0] = "logits"
    for tensor in g.tensors:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name)
        )
    types = {"x": TensorProto.FLOAT16, "logits": TensorProto.FLOAT16}
    network, state = import_restored(g.model({"x": ("N", 1, 8, 8)}, ["logits"], types=types))
    assert len(network.restored_norms) == 1
    assert state[network.restored_norms[0].scale].dtype == torch.float32
    assert {a.dtype for a in to_file_weights(network, state).values()} == {np.dtype(np.float16)}


def test_model_whose_outputs_would_change_stays_as_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(restore_batch_norm, "TOLERANCE", -1.0)
    network = import_restored(fold_norms(conv_bn_classifier()))
    assert not network.restored_norms
    assert "not restored" in network.notes[-1]
