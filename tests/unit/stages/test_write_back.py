"""From a state to the weights of the file, and back."""

from pathlib import Path

import numpy as np
import torch

from benchmarks.restore_bn import fold_norms
from ltp_pipeline.stages import export
from ltp_pipeline.stages.write_back import from_file_weights, to_file_weights
from tests.support.imported import import_network
from tests.support.models import conv_bn_classifier
from tests.support.restored import import_restored, list_stored, make_context, run_outputs


def test_to_file_weights_of_untrained_network_returns_file_weights():
    model = fold_norms(conv_bn_classifier())
    arrays = to_file_weights(*import_restored(model))
    expected = list_stored(model)
    assert arrays.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(arrays[name], value, rtol=1e-6, atol=1e-6)


def test_to_file_weights_of_trained_network_keeps_function_and_zeros(tmp_path: Path):
    network, tensors = result = import_restored(fold_norms(conv_bn_classifier()))
    with torch.no_grad():
        for norm in network.restored_norms:
            tensors[norm.layer_weight][:, :, ::2] = 0.0
            tensors[norm.scale].mul_(-torch.linspace(0.1, 3, 8))
            tensors[norm.mean].add_(0.3)
    arrays = to_file_weights(network, tensors)
    for norm in network.restored_norms:
        assert np.array_equal(
            arrays[norm.layer_weight] == 0, (tensors[norm.layer_weight] == 0).numpy()
        )
        assert not np.signbit(arrays[norm.layer_weight][arrays[norm.layer_weight] == 0]).any()
    export.write_file(
        network.file,
        arrays,
        [k.name for k in network.layer_weights],
        "sparse",
        tmp_path / "model.onnx",
    )
    x = torch.randn(4, 1, 8, 8)
    assert torch.allclose(
        run_outputs(import_network(tmp_path / "model.onnx"), x), run_outputs(result, x), atol=1e-4
    )


def test_from_file_weights_of_original_returns_initial_state(tmp_path: Path):
    model = fold_norms(conv_bn_classifier())
    network, state = import_restored(model)
    again = from_file_weights(make_context(network, tmp_path), list_stored(model))
    assert list(again) == list(state)
    assert all(torch.equal(again[name], tensor) for name, tensor in state.items())
