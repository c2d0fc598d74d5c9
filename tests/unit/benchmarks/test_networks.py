"""The networks of benchmarks/networks are those of their papers, and their files are fit for training."""

import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from torch import nn

from benchmarks.networks import NETWORKS, as_onnx, build_network, make_module
from benchmarks.networks.layers import split_evenly
from tests.support.imported import import_network
from tests.support.paths import ROOT

# Parameters as published (for ResNet20 "0.27 M", here with shortcuts that have none). Layers with
# kernels are counted from the papers' tables, but for MixNet-S, whose number is that of the network
# built here.
PUBLISHED = {
    "resnet20": (269_722, 20),
    "alexnet": (61_100_840, 8),
    "resnet50": (25_557_032, 54),
    "mobilenetv2": (3_504_872, 53),
    "efficientnet-b0": (5_288_548, 82),
    "efficientnet-b0-swish": (5_288_548, 82),
    "mixnet-s": (4_134_606, 124),
}


@cache
def small(name: str) -> tuple[nn.Module, onnx.ModelProto]:
    """A network for five classes and images of 32 pixels, and its file."""
    network = build_network(name, classes=5, size=32)
    return network, as_onnx(network, (3, 32, 32))


def kernels(network: nn.Module) -> list[nn.Module]:
    return [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters_are_those_published_and_no_kernel_is_missing(name: str):
    with torch.device("meta"):
        network = make_module(name)
    assert (sum(p.numel() for p in network.parameters()), len(kernels(network))) == PUBLISHED[name]


@pytest.mark.parametrize(
    "name", ["resnet20", "mobilenetv2", "efficientnet-b0", "efficientnet-b0-swish", "mixnet-s"]
)
def test_a_file_has_every_kernel_and_norm_and_computes_the_same(name: str):
    network, model = small(name)
    onnx.checker.check_model(model, full_check=True)
    ops = Counter(node.op_type for node in model.graph.node)
    assert ops["Conv"] + ops["Gemm"] == len(kernels(network))
    assert ops["BatchNormalization"] == sum(
        isinstance(m, nn.BatchNorm2d) for m in network.modules()
    )
    assert ops["Dropout"] == (name != "resnet20")
    assert not {"Identity", "Constant"} & ops.keys()
    x = torch.from_numpy(
        np.random.default_rng(0).standard_normal((3, 3, 32, 32)).astype(np.float32)
    )
    with torch.no_grad():
        expected = network(x).numpy()
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    np.testing.assert_allclose(
        session.run(None, {"image": x.numpy()})[0], expected, atol=1e-4 * np.abs(expected).max()
    )
    assert 0.01 < expected.std() < 100  # neither died nor blew up on the way


def test_equal_tensors_of_fresh_norms_are_not_one_tensor():
    _, model = small("resnet20")
    norms = [node for node in model.graph.node if node.op_type == "BatchNormalization"]
    names = [name for node in norms for name in node.input[1:]]
    assert len(set(names)) == len(names) == 4 * 19


def test_every_kernel_can_be_pruned():
    assert len(import_network(small("mixnet-s")[1]).prunable_weights) == 124


def test_dropout_is_there_for_training_and_silent_in_inference():
    network, model = small("mobilenetv2")
    module = import_network(model)
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(module(x)[0], network(x), rtol=1e-4, atol=1e-4)
        first, second = (module(x, training=True)[0] for _ in range(2))
        assert not torch.equal(first, second)  # norms use the batch's statistics, the same twice
    assert not any(m.training for m in network.modules())


def test_a_seed_decides_the_weights_and_statistics_and_nothing_else_does():
    first, again, other = (build_network("resnet20", seed=s).state_dict() for s in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    for name in ("stem.conv.weight", "stem.bn.running_var", "classifier.weight"):
        assert not torch.equal(first[name], other[name])


def test_channels_that_do_not_divide_go_to_the_first_part():
    assert split_evenly(120, 4) == [30] * 4
    assert split_evenly(11, 3) == [5, 3, 3]


def test_alexnet_says_when_images_are_too_small():
    with pytest.raises(ValueError, match="at least 63 px"), torch.device("meta"):
        make_module("alexnet", size=62)
    with torch.device("meta"):
        assert kernels(make_module("alexnet", size=63))[5].in_features == 256


@pytest.mark.slow
def test_the_command_writes_a_network_for_grey_images_of_28_pixels(tmp_path: Path):
    out = tmp_path / "grey.onnx"
    options = [
        "resnet20",
        "--channels",
        "1",
        "--size",
        "28",
        "--classes",
        "7",
        "--seed",
        "3",
        "--out",
        str(out),
    ]
    subprocess.run([sys.executable, "-m", "benchmarks.networks", *options], cwd=ROOT, check=True)
    model = onnx.load(out)
    dims = [d.dim_value or d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert dims == ["batch", 1, 28, 28]
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    assert weights["classifier.weight"].shape == (7, 64)
