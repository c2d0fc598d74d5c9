"""Paper mode and its ablations."""

import pytest
import torch

from ltp_pipeline.config import MethodSettings
from ltp_pipeline.stages.learn_thresholds.given_lambda import GivenLambda
from ltp_pipeline.stages.train.phase import StepPosition

STEPS = 200


def learn(lam: float, **settings: object) -> GivenLambda:
    """Train one layer towards its own values: small weights hardly matter."""
    w = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    goal, live = w.clone(), {"layer": w.requires_grad_()}
    method = GivenLambda(live, {"layer": 4}, lam, MethodSettings(threshold_lr_ratio=0.05, t0=0.05, **settings))
    for step in range(STEPS):
        w.grad = None
        (method.weights()["layer"] - goal).square().sum().backward()
        method.after_backward(StepPosition(0, step, STEPS, lr=0.01))
        with torch.no_grad():
            w -= 0.01 * w.grad
    return method


def kept(method: GivenLambda) -> float:
    return int(method.hard(1.0)["layer"].count_nonzero()) / 2000


def test_a_larger_lambda_prunes_more():
    assert kept(learn(1.0)) < kept(learn(0.1)) < 1.0


def test_without_a_regulariser_hardly_anything_is_pruned():
    assert kept(learn(1.0, regulariser="none")) > 0.9


def test_l2_makes_all_weights_smaller():
    sizes = [learn(0.5, regulariser=r).live["layer"].square().mean().item() for r in ("l2", "none")]
    assert sizes[0] < 0.7 * sizes[1]


def test_the_exact_gradient_opens_a_gap_around_the_threshold():
    """The paper's reason for eq. (4): with (10), weights leave the transition region and pruning stalls."""

    def inside(gradient: str) -> int:
        method = learn(0.3, weight_gradient=gradient)
        w, tau, T = method.live["layer"].detach(), method.tau.item(), method.T.item()
        return int(((w.square() - tau).abs() < T).sum())

    assert inside("10") < 0.7 * inside("4")


def test_temperature_anneals_to_its_end():
    method = learn(0.1, t0_end=0.001)
    assert method.T.item() == pytest.approx(0.001 * method.unit.item(), rel=1e-5)


def test_every_layer_keeps_its_floor():
    assert int(learn(1e6).hard(1.0)["layer"].count_nonzero()) >= 4


def test_the_log_says_what_the_regulariser_adds_and_how_fast_thresholds_move():
    method = learn(0.5)
    logged = method.log(StepPosition(0, 0, STEPS, lr=0.01))
    assert logged["threshold_lr"] == pytest.approx(0.05 * 0.01)
    assert logged["lambda"] == 0.5
    assert logged["l0_loss"] == pytest.approx(0.5 * 2000 * kept(method), rel=0.1)  # soft and hard count nearly agree


def test_another_regulariser_adds_no_count_to_the_loss():
    assert learn(0.5, regulariser="l2").log(StepPosition(0, 0, STEPS, lr=0.01))["l0_loss"] == 0


@pytest.mark.parametrize("size", [0.0, 0.3])
def test_weights_of_one_size_have_a_temperature_too(size: float):
    w = torch.full((50,), size).requires_grad_()
    method = GivenLambda({"layer": w}, {"layer": 4}, 0.1, MethodSettings())
    for step in range(3):
        w.grad = None
        (method.weights()["layer"] - 1).square().sum().backward()
        method.after_backward(StepPosition(0, step, 3, lr=0.01))
    assert method.T.item() > 0
    assert method.tau.isfinite().all()
    assert w.grad.isfinite().all()
