"""Costs in time of the fast file, planned with a timer that follows a formula."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.sparse_ops.fast_timing import FastTiming
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import learn_thresholds
from ltp_pipeline.stages.multiply_adds import count_cost
from ltp_pipeline.stages.prepare import latency_costs
from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.system.arrays import StateDict

Started = tuple[RunContext, StateDict]
ORIGINAL_MS = 2.0
CONSTANT_MS = 0.3  # of the parts that do not get faster


class FormulaTimer:
    """Times files by a formula: a nonzero takes longer in the first layers.

    Attributes:
        calls: Number of files that were timed.
        factor: Factor of all times of sparse layers.
    """

    calls = 0
    factor = 1.0

    def __init__(self, model: Any, weight_names: Sequence[str], *_: Any) -> None:
        self.model = model
        self.names = weight_names

    def time_files(self, networks: Sequence[Any]) -> list[FastTiming | None]:
        timings: list[FastTiming | None] = []
        for weights in networks:
            FormulaTimer.calls += 1
            layer_ms = {
                name: self.factor * (0.01 + 1e-3 * np.count_nonzero(array) / (1 + i))
                for i, (name, array) in enumerate(weights.items())
            }
            timings.append(
                FastTiming((CONSTANT_MS + sum(layer_ms.values())) / ORIGINAL_MS, layer_ms)
            )
        return timings


@pytest.fixture
def begin(started: Started, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], RunContext]:
    """Return the context of a run with a budget of latency."""
    monkeypatch.setattr(latency_costs, "FastFileTimer", FormulaTimer)
    monkeypatch.setattr(FormulaTimer, "calls", 0)
    monkeypatch.setattr(FormulaTimer, "factor", 1.0)

    def resolve(target: float) -> RunContext:
        settings = started[0].settings.model_copy(
            update={
                "budget": Settings.model_validate({"budget": {"target_latency": target}}).budget
            }
        )
        return latency_costs.resolve_costs(replace(started[0], settings=settings), started[1])

    return resolve


def measure(context: RunContext, weights: Any) -> float:
    """Return the ratio of the file with these weights of prunable layers."""
    timer = FormulaTimer(None, ())
    names = [layer.name for layer in context.network.prunable_weights]
    (timing,) = timer.time_files([{name: weights[name].numpy() for name in names}])
    assert timing is not None
    return timing.ratio


@pytest.mark.parametrize("target", [0.5, 0.8])
@pytest.mark.parametrize("aggressiveness", [0.0, 1.0])
def test_pruned_weights_have_the_latency_of_the_budget(
    begin: Any, started: Started, target: float, aggressiveness: float
) -> None:
    context = begin(target)
    method = learn_thresholds.make_pruning_method(
        context.network, started[1], context.settings, aggressiveness, context.weight_costs
    )
    ratio = measure(context, method.pruned_weights(1.0))
    assert ratio == pytest.approx(target, rel=latency_costs.CLOSE)


def test_costs_are_picoseconds_of_a_nonzero(begin: Any) -> None:
    context = begin(0.5)
    names = [layer.name for layer in context.network.prunable_weights]
    expected = {name: round(1e6 / (1 + i)) for i, name in enumerate(names)}
    assert {name: context.costs[name] for name in names} == pytest.approx(expected, rel=0.01)


def test_prediction_is_the_measured_ratio(begin: Any, started: Started) -> None:
    context = begin(0.5)
    costs = context.weight_costs
    assert costs is not None
    assert costs.predict is not None
    method = learn_thresholds.make_pruning_method(
        context.network, started[1], context.settings, 0.0, costs
    )
    pruned = {**started[1], **method.pruned_weights(1.0)}
    nonzeros = count_nonzeros(context.network, pruned)
    assert costs.predict(nonzeros) == pytest.approx(measure(context, pruned), rel=0.01)


def test_latency_that_is_out_of_reach_is_refused_with_the_smallest(begin: Any) -> None:
    with pytest.raises(InputError, match="out of reach") as caught:
        begin(0.15)
    assert "set budget.target_latency above 0." in caught.value.hint


def test_resumed_run_takes_the_model_of_its_directory(begin: Any) -> None:
    first = begin(0.5).weight_costs
    calls = FormulaTimer.calls
    FormulaTimer.factor = 2.0
    assert begin(0.5).weight_costs == first
    assert FormulaTimer.calls == calls


def test_learned_masks_are_timed_once(begin: Any, started: Started) -> None:
    context = begin(0.5)
    FormulaTimer.factor = 0.8  # learned masks are faster than those of the original
    method = learn_thresholds.make_pruning_method(
        context.network, started[1], context.settings, 1.0, context.weight_costs
    )
    ratio = measure(context, method.pruned_weights(1.0))
    assert ratio == pytest.approx(0.5, rel=latency_costs.CLOSE)
    calls = FormulaTimer.calls
    FormulaTimer.factor = 3.0
    before = context.run_directory.manifest.latency_model
    method.pruned_weights(1.0)
    assert FormulaTimer.calls == calls
    assert context.run_directory.manifest.latency_model == before


def test_budget_of_the_model_is_the_cost_of_all_layers(begin: Any, started: Started) -> None:
    context = begin(0.5)
    costs = context.weight_costs
    assert costs is not None
    method = learn_thresholds.make_pruning_method(
        context.network, started[1], context.settings, 0.0, costs
    )
    nonzeros = count_nonzeros(context.network, {**started[1], **method.pruned_weights(1.0)})
    spent = count_cost(nonzeros, costs.per_weight)
    assert costs.budget - max(costs.per_weight.values()) <= spent <= costs.budget


def test_check_sparse_operators_without_library_refuses_a_budget_of_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(latency_costs.fast, "explain_missing_library", lambda: "not built")
    latency_costs.check_sparse_operators(Settings())
    with pytest.raises(InputError, match="not built"):
        latency_costs.check_sparse_operators(
            Settings.model_validate({"budget": {"target_latency": 0.5}})
        )


def test_files_that_do_not_get_faster_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be planned"):
        latency_costs._fit_line(np.array([1.0, 2.0]), np.array([0.5, 0.4]), 0.5)


def test_line_is_fitted_to_the_points_near_the_target() -> None:
    costs = np.array([0.0, 1.0, 2.0, 10.0])
    ratios = np.array([0.1, 0.2, 0.3, 0.5])
    slope, constant = latency_costs._fit_line(costs, ratios, 0.2)
    assert slope * 1 + constant == pytest.approx(0.2, abs=0.03)
