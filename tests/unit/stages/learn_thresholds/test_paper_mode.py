"""Paper mode and its ablations."""

import pytest
import torch

from ltp_pipeline.settings.schema import MethodSettings
from ltp_pipeline.stages.learn_thresholds.functional import clamped_weight_gradient, soft_l0_slope
from ltp_pipeline.stages.learn_thresholds.paper_mode import FixedLambdaPruning
from ltp_pipeline.stages.train.phase import StepPosition

STEPS = 200


def learn(lam: float, **settings: object) -> FixedLambdaPruning:
    """Train one layer towards its own values: small weights hardly matter."""
    w = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    goal, live = w.clone(), {"layer": w.requires_grad_()}
    method = FixedLambdaPruning(
        live, {"layer": 4}, lam, MethodSettings(threshold_lr_ratio=0.05, t0=0.05, **settings)
    )
    for step in range(STEPS):
        w.grad = None
        (method.effective_weights()["layer"] - goal).square().sum().backward()
        method.after_backward(StepPosition(0, step, STEPS, threshold_lr=0.01))
        with torch.no_grad():
            w -= 0.01 * w.grad
    return method


def kept(method: FixedLambdaPruning) -> float:
    return int(method.pruned_weights(1.0)["layer"].count_nonzero()) / 2000


def test_paper_mode_larger_lambda_prunes_more():
    assert kept(learn(1.0)) < kept(learn(0.1)) < 1.0


def test_paper_mode_without_regularizer_hardly_prunes():
    assert kept(learn(1.0, regularizer="none")) > 0.9


def test_l2_makes_all_weights_smaller():
    sizes = [
        learn(0.5, regularizer=r).layer_weights["layer"].square().mean().item()
        for r in ("l2", "none")
    ]
    assert sizes[0] < 0.7 * sizes[1]


def test_paper_mode_exact_gradient_opens_a_gap():
    """The paper's reason for eq. (4): with (10), weights leave the transition region and pruning stalls."""

    def inside(gradient: str) -> int:
        method = learn(0.3, weight_gradient=gradient)
        w, tau, T = method.layer_weights["layer"].detach(), method.tau.item(), method.T.item()
        return int(((w.square() - tau).abs() < T).sum())

    assert inside("exact") < 0.7 * inside("approximate")


def test_temperature_anneals_to_its_end():
    method = learn(0.1, t0_end=0.001)
    assert method.T.item() == pytest.approx(0.001 * method.unit.item(), rel=1e-5)


def test_temperature_anneals_from_step_to_step():
    settings = MethodSettings(t0=0.1, t0_end=0.001)
    method = FixedLambdaPruning(
        {"layer": torch.randn(9).requires_grad_()}, {"layer": 1}, 0.1, settings
    )
    method.effective_weights()["layer"].sum().backward()
    method.after_backward(StepPosition(0, 1, 4, threshold_lr=0.01))  # half of the way
    assert method.T.item() == pytest.approx(0.01 * method.unit.item(), rel=1e-5)


def test_paper_mode_layers_keep_their_minimum():
    assert int(learn(1e6).pruned_weights(1.0)["layer"].count_nonzero()) >= 4


def test_paper_mode_logs_regularizer_and_threshold_rate():
    method = learn(0.5)
    logged = method.log_values(StepPosition(0, 0, STEPS, threshold_lr=0.01))
    assert logged["threshold_lr"] == pytest.approx(0.05 * 0.01)
    assert logged["lambda"] == 0.5
    assert logged["l0_loss"] == pytest.approx(
        0.5 * 2000 * kept(method), rel=0.1
    )  # soft and hard count nearly agree


def test_paper_mode_other_regularizer_adds_no_count():
    assert (
        learn(0.5, regularizer="l2").log_values(StepPosition(0, 0, STEPS, threshold_lr=0.01))[
            "l0_loss"
        ]
        == 0
    )


@pytest.mark.parametrize("size", [0.0, 0.3])
def test_weights_of_one_size_have_a_temperature_too(size: float):
    w = torch.full((50,), size).requires_grad_()
    method = FixedLambdaPruning({"layer": w}, {"layer": 4}, 0.1, MethodSettings())
    for step in range(3):
        w.grad = None
        (method.effective_weights()["layer"] - 1).square().sum().backward()
        method.after_backward(StepPosition(0, step, 3, threshold_lr=0.01))
    assert method.T.item() > 0
    assert method.tau.isfinite().all()
    assert w.grad.isfinite().all()


def one_layer(
    lam: float = 0.1, momentum: float = 0.0, **settings: object
) -> tuple[FixedLambdaPruning, torch.Tensor]:
    """A layer of a few weights, with the gradient of a loss that does not depend on them."""
    w = torch.tensor([0.1, -0.4, 0.2, 0.9, -0.3, 0.6]).requires_grad_()
    method = FixedLambdaPruning(
        {"layer": w}, {"layer": 1}, lam, MethodSettings(**settings), momentum
    )
    (0 * method.effective_weights()["layer"]).sum().backward()
    return method, w


def test_thresholds_start_at_zero():
    method, _ = one_layer()
    assert method.tau.tolist() == [0.0]


def test_temperature_follows_eq_12():
    method, w = one_layer(t0=0.02)
    assert method.T.item() == pytest.approx(
        0.02 * w.detach().abs().var(correction=0).item(), rel=1e-6
    )


def test_threshold_stays_nonnegative():
    """A loss that wants smaller thresholds, and no regularizer against it."""
    method, _ = one_layer(regularizer="none", threshold_lr_ratio=1.0)
    method.tau.grad.fill_(1.0)
    method.after_backward(StepPosition(0, 0, 10, threshold_lr=0.1))
    assert method.tau.tolist() == [0.0]


def test_threshold_update_follows_eq_8():
    method, w = one_layer(lam=0.3, threshold_lr_ratio=0.5, t0=0.5)
    slope = soft_l0_slope(w.detach(), method.tau[0].detach(), method.T[0]).item()
    method.tau.grad.fill_(-2.0)
    method.after_backward(StepPosition(0, 0, 10, threshold_lr=0.1))
    assert method.tau.item() == pytest.approx(-0.5 * 0.1 * (-2.0 + 0.3 * slope), rel=1e-5)


def test_l2_gradient_is_twice_the_weight():
    method, w = one_layer(lam=0.3, regularizer="l2")
    method.after_backward(StepPosition(0, 0, 10, threshold_lr=0.1))
    assert torch.allclose(w.grad, 2 * 0.3 * w.detach())


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_clamped_gradient_respects_eq_17(momentum: float):
    method, w = one_layer(lam=0.3, momentum=momentum, weight_gradient="clamped", t0=0.5)
    tau, T = method.tau[0].detach().clone(), method.T[0]
    method.after_backward(StepPosition(0, 0, 10, lr=0.1, threshold_lr=0.1))
    expected = clamped_weight_gradient(torch.zeros_like(w), w.detach(), tau, T, 0.3, 0.1, momentum)
    assert expected.abs().max() > 0
    assert torch.allclose(w.grad, expected)
