"""Which optimizer, with which settings, and what it does to which weights."""

from typing import Any

import numpy as np
import pytest
import torch

from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.settings.schema import TrainSettings
from ltp_pipeline.stages.train.optimizer import (
    OptimizerSettings,
    make_optimizer,
    resolve_optimizer_settings,
)
from tests.support.imported import import_network
from tests.support.models import Graph, mlp

SGD = OptimizerSettings("sgd", lr=0.03, weight_decay=0.0, warmup_fraction=0.0, max_grad_norm=0.0)
ADAMW = OptimizerSettings(
    "adamw", lr=1e-4, weight_decay=0.01, warmup_fraction=0.06, max_grad_norm=1.0
)


def text_model() -> Any:
    """Embeddings and a number for each word, a layer norm, and two layers: one kernel with a bias, one without."""
    g = Graph()
    x = g.add("Gather", g.random("embedding", 20, 8), "tokens")
    number = g.add(
        "Unsqueeze",
        g.add("Gather", g.random("numbers", 20), "tokens"),
        g.tensor("axis", [-1], np.int64),
    )
    x = g.add("Mul", x, number)
    x = g.add("LayerNormalization", x, g.positive("norm.scale", 8), g.random("norm.bias", 8))
    x = g.add("Add", g.add("MatMul", x, g.random("first", 8, 8)), g.random("positions", 1, 8))
    x = g.add("ReduceMean", g.add("Relu", x), axes=[1], keepdims=0)
    g.add("Gemm", x, g.random("second", 8, 3), g.random("second.bias", 3), outputs=("scores",))
    return g.model({"tokens": ("N", 4)}, ["scores"], types={"tokens": 7})


@pytest.mark.parametrize(
    ("train_settings", "steep", "expected"),
    [
        ({}, False, SGD),
        ({}, True, SGD._replace(max_grad_norm=1.0)),
        ({"lr": 0.5, "max_grad_norm": 0.0}, True, SGD._replace(lr=0.5)),
        ({"optimizer": "adamw"}, False, ADAMW),
        (
            {"optimizer": "adamw", "warmup_fraction": 0.0, "weight_decay": 0.0},
            False,
            ADAMW._replace(warmup_fraction=0, weight_decay=0),
        ),
    ],
)
def test_optimizer_settings_override_defaults(
    train_settings: Any, steep: bool, expected: OptimizerSettings
):
    assert (
        resolve_optimizer_settings(
            TrainSettings(**train_settings), OnnxModel.from_proto(mlp()), steep
        )
        == expected
    )


def test_optimizer_for_layer_norm_defaults_to_adamw():
    model = OnnxModel.from_proto(text_model())
    assert resolve_optimizer_settings(TrainSettings(), model, False) == ADAMW
    assert resolve_optimizer_settings(TrainSettings(optimizer="sgd"), model, False) == SGD


def test_optimizer_complete_settings_are_unchanged():
    train_settings = TrainSettings(**ADAMW._asdict())
    assert resolve_optimizer_settings(train_settings, OnnxModel.from_proto(mlp()), True) == ADAMW


def test_adamw_decays_layer_weights_and_embeddings_only():
    network, state = import_network(text_model())
    parameters = {name: state[name] for name in network.forward.weight_names}
    optimizer = make_optimizer(network, parameters, ADAMW._replace(lr=0.1, weight_decay=0.5), 0.9)
    before = {name: p.detach().clone() for name, p in parameters.items()}
    for p in parameters.values():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    shares = {name: (p / before[name]).mean().item() for name, p in parameters.items()}
    decayed = {name for name, share in shares.items() if share == pytest.approx(0.95)}
    assert decayed == {"embedding", "first", "second"}
    assert all(share == 1 for name, share in shares.items() if name not in decayed)


def test_momentum_is_the_first_beta_of_adamw():
    w = torch.nn.Parameter(torch.ones(3))
    network, _ = import_network(mlp())
    assert make_optimizer(network, {"w": w}, ADAMW, 0.7).defaults["betas"] == (0.7, 0.999)
