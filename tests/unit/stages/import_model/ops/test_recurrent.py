"""Activation functions of recurrent operators."""

import pytest
import torch

from ltp_pipeline.stages.import_model.ops.recurrent import make_activations


def test_alphas_and_betas_go_to_the_functions_that_have_them() -> None:
    names = ["Tanh", "Elu", "HardSigmoid", "LeakyRelu", "Affine"]
    tanh, elu, hard_sigmoid, leaky_relu, affine = make_activations(names, 5, [2.0, 0.5], [0.25])
    x = torch.tensor([-1.0])
    assert tanh(x) == x.tanh()
    assert elu(x) == 2 * x.expm1()
    assert hard_sigmoid(x) == 0
    assert hard_sigmoid(-x) == 0.75
    assert leaky_relu(x) == 0.01 * x
    assert affine(x) == x


def test_too_few_activations_are_rejected() -> None:
    with pytest.raises(ValueError, match="activations"):
        make_activations(["Tanh"], 2, None, None)


def test_unknown_activation_is_rejected() -> None:
    with pytest.raises(ValueError, match="'cosine'"):
        make_activations(["Cosine"], 1, None, None)
