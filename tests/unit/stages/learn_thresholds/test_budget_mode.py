"""Budget mode: the schedule is met exactly, layers settle where pruning costs the same."""

import pytest
import torch

from ltp_pipeline.stages.learn_thresholds.budget_mode import (
    SolvedLambdaPruning,
    _group_small_layers,
)
from ltp_pipeline.stages.learn_thresholds.functional import rectified_gates
from ltp_pipeline.stages.learn_thresholds.schedule import PruningSchedule
from ltp_pipeline.stages.train.phase import StepPosition

SHAPES = {"conv": (16, 8, 3), "matmul": (20, 8), "single": (10, 20)}
AXES = {"conv": 0, "matmul": 1}


def make(
    count: int = 60,
    scales: tuple[float, ...] = (1.0, 0.1),
    scaled: tuple[str, ...] = (),
    m: float = 1.0,
) -> SolvedLambdaPruning:
    generator = torch.Generator().manual_seed(0)
    live = {
        f"layer{i}": (s * torch.randn(500, generator=generator)).requires_grad_()
        for i, s in enumerate(scales)
    }
    total = 500 * len(scales)
    schedule = PruningSchedule.to_target(total, total, count, m)
    return SolvedLambdaPruning(live, dict.fromkeys(live, 4), schedule, scaled)


def nonzeros(tensors: dict[str, torch.Tensor]) -> int:
    return sum(int(t.count_nonzero()) for t in tensors.values())


def learn(method: SolvedLambdaPruning, importance: tuple[float, ...], steps: int = 300) -> None:
    """Steps whose loss rises when weights of a layer shrink, more in one layer than in another."""
    for step in range(steps):
        pruned = method.effective_weights()
        lost = [
            (v - w.detach()).square().sum()
            for v, w in zip(pruned.values(), method.layer_weights.values(), strict=True)
        ]
        sum(i * x for i, x in zip(importance, lost, strict=True)).backward()
        method.after_backward(StepPosition(0, step, steps, threshold_lr=0.01))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
def test_hard_pruning_leaves_exactly_the_scheduled_count(share: float):
    method = make()
    assert nonzeros(method.pruned_weights(share)) == method.schedule.count_at(share)


def test_budget_mode_ends_at_the_budget():
    method = make(60)
    learn(method, (1.0, 1.0))
    assert nonzeros(method.effective_weights()) == pytest.approx(60, abs=len(method.layer_weights))


def test_budget_mode_important_layer_keeps_more():
    method = make(200, scales=(1.0, 1.0))
    learn(method, (0.01, 0.001))
    kept = {n: int(w.count_nonzero()) for n, w in method.pruned_weights(1.0).items()}
    assert kept["layer0"] > 1.3 * kept["layer1"]


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_blocks_are_kept_or_pruned_as_a_whole_and_the_schedule_is_met_to_a_block(share: float):
    generator = torch.Generator().manual_seed(0)
    live = {
        n: torch.randn(shape, generator=generator).requires_grad_() for n, shape in SHAPES.items()
    }
    total = sum(w.numel() for w in live.values())
    method = SolvedLambdaPruning(
        live, dict.fromkeys(live, 4), PruningSchedule.to_target(total, total, 100, 1.0), axes=AXES
    )
    learn(method, (1.0, 0.5, 0.1), steps=30)
    count = method.schedule.count_at(share)
    pruned = method.pruned_weights(share)
    assert count - 4 < nonzeros(pruned) <= count
    assert count - 4 < method.count_kept() <= count
    for vs in (pruned, method.effective_weights()):
        for name, axis in AXES.items():
            rows = (vs[name] != 0).movedim(axis, -1).reshape(-1, 4)
            assert torch.equal(rows.all(1), rows.any(1))
        kept = (vs["single"] != 0).reshape(-1, 4)
        assert not torch.equal(kept.all(1), kept.any(1))


def test_floors_hold_in_the_forward_pass_too():
    method = make(60, scales=(1.0, 1e-4))
    learn(method, (0.1, 0.1))
    assert all(int(v.count_nonzero()) >= 4 for v in method.effective_weights().values())


def test_state_brings_back_the_same_thresholds():
    method, other = make(), make()
    learn(method, (1.0, 2.0), steps=20)
    other.load_state_dict(method.state_dict())
    assert torch.equal(method.tau, other.tau)


def test_the_log_has_the_solved_lambda():
    method = make()
    learn(method, (1.0, 1.0))
    logged = method.log_values(StepPosition(0, 0, 300, threshold_lr=0.01))
    assert logged == {"lambda": method.lam}
    assert logged["lambda"] != 0


def test_budget_mode_state_has_gate_widths():
    method, other = make(30, scaled=("layer1",)), make(30, scaled=("layer1",))
    learn(method, (1.0, 2.0), steps=20)
    other.load_state_dict(method.state_dict())
    assert other.widths == pytest.approx([1.0, 0.1])
    assert all(
        map(torch.equal, method.effective_weights().values(), other.effective_weights().values())
    )


@pytest.mark.parametrize("hard", [False, True])
def test_budget_mode_layer_without_norm_keeps_its_scale(hard: bool):
    method = make(30, scaled=("layer0",))
    pruned = method.pruned_weights(0.0) if hard else method.effective_weights()
    sizes = {n: v.norm() / (method.layer_weights[n] * (v != 0)).norm() for n, v in pruned.items()}
    assert sizes["layer0"].item() == pytest.approx(1.0)
    assert sizes["layer1"].item() < 0.9


def test_budget_mode_low_compression_starts_unscaled():
    method = make(300, scales=(1.0, 1.0), m=0.0)
    pruned, live = (
        torch.cat([*ws]).detach()
        for ws in (method.effective_weights().values(), method.layer_weights.values())
    )
    assert int(pruned.count_nonzero()) == pytest.approx(300, abs=2)
    kept = live.abs() >= live.abs().sort().values[-300]
    assert torch.dist(pruned, live * kept) < 0.1 * torch.linalg.vector_norm(live * kept)


def test_thresholds_move_two_hundred_times_or_at_each_step(monkeypatch: pytest.MonkeyPatch):
    method = make()
    solved = []
    monkeypatch.setattr(method, "_solve_lambda", lambda _: solved.append(step))
    for step in range(600):
        method.log_tau.grad = torch.zeros_like(method.log_tau)
        method.after_backward(StepPosition(0, step, 600, threshold_lr=0.01))
    assert solved == list(range(2, 600, 3))


def test_lambda_is_the_loss_for_each_weight_that_a_common_factor_of_thresholds_removes():
    method = make(100, scales=(1.0, 1.0))
    learn(method, (1.0, 1.0))

    def loss_and_count(factor: float) -> tuple[float, float]:
        ws = list(method.layer_weights.values())
        gates = rectified_gates(ws, factor * method.tau, method.widths)
        loss = sum((w * (gate - 1)).square().sum() for w, gate in zip(ws, gates, strict=True))
        return float(loss), float(sum(gate.sum() for gate in gates))

    with torch.no_grad():
        (low, more), (high, fewer) = loss_and_count(0.99), loss_and_count(1.01)
    assert method.lam == pytest.approx((high - low) / (more - fewer), rel=0.1)


def test_thresholds_stay_in_proportion_to_costs_if_they_are_not_learned():
    live = {n: torch.randn(500).requires_grad_() for n in ("a", "b")}
    costs = {"a": 1.0, "b": 9.0}
    schedule = PruningSchedule.to_target(5_000, 5_000, 500, 1.0)
    method = SolvedLambdaPruning(
        live, dict.fromkeys(live, 4), schedule, costs=costs, max_log_change=0.0
    )
    learn(method, (1.0, 1.0), steps=50)
    kept = {n: int(w.count_nonzero()) for n, w in method.pruned_weights(1.0).items()}
    assert float(method.tau[1] / method.tau[0]) == pytest.approx(9.0, rel=1e-4)
    assert 491 <= kept["a"] + 9 * kept["b"] <= 500


def test_hard_network_has_the_forward_values():
    method = make(scales=(1.0, 1.0))
    hard, soft = method.pruned_weights(0.0), method.effective_weights()
    for name, v in soft.items():
        both = (v != 0) & (hard[name] != 0) & ((v / method.layer_weights[name]).abs() > 0.01)
        assert int(both.sum()) > 10
        assert torch.allclose(hard[name][both], v[both])


def test_neighbouring_layers_are_pruned_together_as_far_as_a_cache_holds_them():
    sizes = {"a": 2**17, "b": 2**17, "c": 1, "large": 2**19, "d": 1, "e": 1}
    assert list(_group_small_layers(sizes)) == [["a", "b"], ["c"], ["large"], ["d", "e"]]


def test_gates_of_kernels_without_a_norm_narrow_from_step_to_step():
    method = make(scaled=("layer1",))
    begun = list(method.widths)
    found = []
    for step in range(4):
        method.log_tau.grad = torch.zeros_like(method.log_tau)
        method.after_backward(StepPosition(0, step, 4, threshold_lr=0.01))
        found.append(list(method.widths))
    assert begun == method._gate_widths(0.0) == [1.0, 1.0]
    assert found == [method._gate_widths(share) for share in (0.25, 0.5, 0.75, 1.0)]


def test_hard_network_keeps_weights_at_the_threshold():
    live = {"layer": torch.ones(10).requires_grad_()}
    method = SolvedLambdaPruning(live, {"layer": 1}, PruningSchedule.to_target(10, 10, 4, 1.0))
    assert nonzeros(method.pruned_weights(1.0)) == 4
