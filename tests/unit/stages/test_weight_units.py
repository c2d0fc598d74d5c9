"""Units of training: the function stays, the scaling of a file does not matter, files get it back."""

import math
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper

import ltp_pipeline
from ltp_pipeline import demo
from ltp_pipeline.stages import weight_units
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.system.arrays import StateDict


def load_example(**factors: float) -> tuple[Network, StateDict]:
    """The example with layers rescaled, by the name of the layer; the function stays the same."""
    model = onnx.load(Path(demo.__file__).with_name(demo.MODEL))
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for layer, factor in factors.items():
        name = layer.replace("_", ".")
        for key, scale in (("weight", factor), ("bn.mean", factor), ("bn.var", factor**2)):
            tensor = tensors[f"{name}.{key}"]
            array = numpy_helper.to_array(tensor) * np.float32(scale)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return ltp_pipeline.import_model(model)


def compute_outputs(network: Network, state: StateDict) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = [int(size) if isinstance(size, int) else 4 for size in network.file.inputs[0].shape]
    images = torch.rand(shape, generator=generator)
    with torch.inference_mode():
        return network.forward({network.file.inputs[0].name: images}, state)[0]


def test_units_do_not_change_the_function():
    network, state = load_example()
    converted, new_state = weight_units.run(network, state)
    assert converted.units
    expected = compute_outputs(network, state)
    assert torch.allclose(compute_outputs(converted, new_state), expected, atol=1e-4)


def test_each_output_channel_has_the_size_of_he_initialization():
    network, state = load_example()
    converted, new_state = weight_units.run(network, state)
    for unit in converted.units:
        rows = new_state[unit.layer_weight].movedim(unit.axis, 0).flatten(1)
        sizes = rows.square().mean(1).sqrt()
        target = math.sqrt(2 / rows.shape[1])
        assert torch.allclose(sizes, torch.full_like(sizes, target), rtol=1e-4)


def test_rescaled_layers_have_the_same_weights_in_training():
    expected = weight_units.run(*load_example())[1]
    actual = weight_units.run(*load_example(block1_conv1=16.0, block2_conv2=1 / 4))[1]
    for name, tensor in expected.items():
        assert torch.allclose(actual[name], tensor, rtol=2e-3, atol=1e-5), name


def test_from_units_gives_back_the_tensors_of_the_file():
    network, state = load_example(block1_conv1=16.0)
    converted, new_state = weight_units.run(network, state)
    restored = weight_units.from_units(converted.units, new_state)
    for name, tensor in state.items():
        assert torch.allclose(restored[name], tensor, rtol=1e-5, atol=1e-7), name


def test_zeros_stay_zeros_in_both_directions():
    network, state = load_example()
    name = "block1.conv1.weight"
    state[name] = state[name].clone()
    state[name][0] = 0.0  # a dead channel
    state[name][1, 0] = 0.0
    converted, new_state = weight_units.run(network, state)
    restored = weight_units.from_units(converted.units, new_state)
    for tensors in (new_state, restored):
        assert torch.equal(tensors[name] == 0, state[name] == 0)
        assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())
