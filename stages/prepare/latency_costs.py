"""Costs in time of the fast file, and the budget at which it is as fast as asked.

A model of the time is fitted to fast files of the original with fewer and fewer weights. It is
checked on masks of the budget, and again on those that were learned, and corrected. The run
directory keeps the model, so a resumed run prunes to the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.graphs import fast
from ltp_pipeline.exporters.sparse_ops.fast_timing import (
    FastFileTimer,
    FastTiming,
    fit_weight_times,
)
from ltp_pipeline.graph.layer_weights import get_block_axes
from ltp_pipeline.run_directory.manifest import LatencyModel
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import export
from ltp_pipeline.stages.learn_thresholds.blocks import weight_sizes
from ltp_pipeline.stages.learn_thresholds.fixed_masks import FixedMaskPruning
from ltp_pipeline.stages.learn_thresholds.masks import min_kept_counts
from ltp_pipeline.stages.multiply_adds import count_cost
from ltp_pipeline.stages.prepare.byte_costs import apply_file_masks
from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.weight_costs import (
    MakeMasks,
    Masks,
    ReachableCosts,
    WeightCosts,
    find_reachable,
)
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import Array, StateDict

FRACTIONS = (0.6, 0.3, 0.15, 0.08, 0.04)  # of the weights, in files that the model is fitted to
MAX_CORRECTIONS = 4
MIN_DISTANCE = 0.05  # of a latency ratio to the target, at which a point counts half
CLOSE = 0.015  # relative difference of a latency at which a budget is good enough
NO_FAST_FILE = (
    "set another budget, such as --target-macs, or run on a machine with the library of sparse"
    " operators (`ltp-pipeline sparse-ops`)"
)


class _Point(NamedTuple):
    """A budget of prunable layers, and the latency ratio of the fast file with such masks."""

    budget: int
    ratio: float


def check_sparse_operators(settings: Settings) -> None:
    """Raise InputError if a budget of latency cannot be measured on this machine."""
    if settings.budget.target_latency is None:
        return
    missing = fast.explain_missing_library()
    if missing is not None:
        raise InputError(
            f"budget.target_latency needs the sparse operators: {missing}", NO_FAST_FILE
        )


def resolve_costs(
    context: RunContext, original: StateDict, run: RunDirectory | None = None
) -> RunContext:
    """Return the context with costs in time, if the budget is one of latency.

    The main process measures, unless the run directory has the model already.

    Args:
        context: The run.
        original: Tensors of the original network.
        run: The run whose trail is used; None for the run of the context.

    Raises:
        InputError: No fast file is as fast.
    """
    target = context.settings.budget.target_latency
    if target is None:
        return context
    directory = run or context.run_directory
    model = directory.manifest.latency_model if distributed.is_main_process() else None
    refusal = None
    if distributed.is_main_process() and model is None:
        context.run_directory.progress.say("Timing fast files with fewer and fewer weights")
        try:
            model = _LatencyProber.start(context, original).fit_model(target)
        except InputError as error:
            refusal = (error.message, error.hint)
        directory.update_manifest(latency_model=model)
    model, refusal = distributed.broadcast_from_main((model, refusal))
    if refusal is not None:  # in all processes
        raise InputError(*refusal)
    assert model is not None  # noqa: S101 - the main process has one

    def meet_target(make_masks: MakeMasks, start: int) -> int:
        return _meet_target(context, original, make_masks, start)

    def predict(nonzeros: Mapping[str, int]) -> float:
        latest = directory.manifest.latency_model or model
        return latest.constant + latest.slope * count_cost(nonzeros, latest.per_weight)

    elements = {layer.name: layer.elements for layer in context.network.layer_weights}
    total = count_cost(elements, model.per_weight)
    costs = WeightCosts("latency", model.per_weight, total, model.budget, meet_target, predict)
    return replace(context, weight_costs=costs)


def _meet_target(
    context: RunContext, original: StateDict, make_masks: MakeMasks, start: int
) -> int:
    """Return the budget at which learned masks are as fast as asked; the manifest keeps it."""
    directory = context.run_directory
    target = context.settings.budget.target_latency
    assert target is not None  # noqa: S101 - the budget is one of latency
    budget = start
    if distributed.is_main_process():
        model = directory.manifest.latency_model
        assert model is not None  # noqa: S101 - it was resolved
        if model.final_budget is None:
            context.run_directory.progress.say("Timing the fast file of the learned masks")
            prober = _LatencyProber.start(context, original)
            reachable = prober.find_reachable(model.per_weight)
            best = prober.approach_target(make_masks, target, start, model.slope, reachable)
            spent = best.budget + reachable.excluded
            model = model.model_copy(
                update={
                    "final_budget": best.budget,
                    "constant": best.ratio - model.slope * spent,
                }
            )
            directory.update_manifest(latency_model=model)
        assert model.final_budget is not None  # noqa: S101 - it was set above
        budget = model.final_budget
    return distributed.broadcast_from_main(budget)


@dataclass(frozen=True)
class _LatencyProber:
    """Times fast files of a network with masks.

    Attributes:
        context: The run.
        original: Tensors of the original network.
        lowest: The smallest number of weights that each prunable layer keeps.
        timer: Times the files.
    """

    context: RunContext
    original: StateDict
    lowest: Mapping[str, int]
    timer: FastFileTimer

    @classmethod
    def start(cls, context: RunContext, original: StateDict) -> _LatencyProber:
        """Return the prober of a run, in the main process."""
        network = context.network
        settings = context.settings
        weights = {layer.name: original[layer.name] for layer in network.prunable_weights}
        axes = get_block_axes(network.layer_weights, settings.method.block)
        sizes = weight_sizes(weights, axes)
        nonzeros = {name: int(r.count_nonzero()) for name, r in sizes.items()}
        lowest = min_kept_counts(network.prunable_weights, nonzeros, settings.method, axes)
        timer = FastFileTimer(
            network.file.model,
            [layer.name for layer in network.layer_weights],
            export.select_feeds(network.file.inputs, context.data),
            settings.export.accelerate_min_sparsity,
        )
        return cls(context, original, lowest, timer)

    def find_reachable(self, costs: Mapping[str, int]) -> ReachableCosts:
        """Return what prunable layers cost at least and at most."""
        network = self.context.network
        nonzeros = count_nonzeros(network, self.original)
        return find_reachable(network.layer_weights, nonzeros, self.lowest, costs)

    def fit_model(self, target: float) -> LatencyModel:
        """Return a model of the latency, and the budget at which it is the target.

        Raises:
            InputError: No fast file is as fast, or all of them are.
        """
        points = self._time_fractions(target)
        elements = {layer.name: layer.elements for layer in self.context.network.layer_weights}
        per_weight = fit_weight_times(points, elements, target)
        costs = np.array([count_cost(nonzeros, per_weight) for nonzeros, _ in points], np.float64)
        ratios = np.array([timing.ratio for _, timing in points])
        slope, constant = _fit_line(costs, ratios, target)
        reachable = self.find_reachable(per_weight)
        start = round((target - constant) / slope) - reachable.excluded

        def make_masks(budget: int) -> Masks:
            return self._make_masks(budget, per_weight)

        best = self.approach_target(make_masks, target, start, slope, reachable)
        spent = best.budget + reachable.excluded
        return LatencyModel(
            per_weight=per_weight,
            slope=slope,
            constant=best.ratio - slope * spent,
            budget=spent,
        )

    def approach_target(
        self,
        make_masks: MakeMasks,
        target: float,
        start: int,
        slope: float,
        reachable: ReachableCosts,
    ) -> _Point:
        """Return the budget, among some that are measured, whose latency is closest to a target.

        Args:
            make_masks: Returns the masks of a budget of prunable layers.
            target: The latency ratio.
            start: The budget to begin with.
            slope: How much the ratio grows with the cost.
            reachable: Smallest and largest budget.
        """
        best = _Point(start, np.inf)
        budget = start
        for _ in range(MAX_CORRECTIONS):
            budget = min(max(budget, reachable.least), reachable.present)
            points = self._time_masks([make_masks(budget)])
            ratio = points[0][1].ratio if points else 1.0  # the file stays dense
            if abs(ratio - target) < abs(best.ratio - target):
                best = _Point(budget, ratio)
            if abs(ratio - target) <= CLOSE * target:
                break
            budget += round((target - ratio) / slope)
        return best

    def _time_fractions(self, target: float) -> list[tuple[Mapping[str, int], FastTiming]]:
        """Time files with fewer and fewer weights, and check that the last one is fast enough."""
        names = [layer.name for layer in self.context.network.layer_weights]
        ones = dict.fromkeys(names, 1)
        excluded, least, present = self.find_reachable(ones)
        budgets = [least]
        for fraction in FRACTIONS:
            budget = round(fraction * (excluded + present)) - excluded
            if least < budget < present:
                budgets.append(budget)
        points = self._time_masks([self._make_masks(budget, ones) for budget in budgets])
        if len(points) < 2:
            raise InputError(
                "budget.target_latency is out of reach: no layer of the model gets faster by zeros",
                NO_FAST_FILE,
            )
        fastest = min(timing.ratio for _, timing in points)
        if fastest > target:
            raise InputError(
                f"a latency of {target:g} of the original's is out of reach: with the fewest"
                f" weights that layers keep, the fast file takes {fastest:.2f}",
                f"set budget.target_latency above {fastest:.2f}, lower method.min_layer_density,"
                " or exclude fewer layers",
            )
        return points

    def _make_masks(self, budget: int, costs: Mapping[str, int]) -> Masks:
        """Return the masks of the weights of the original that are largest in w² / cost."""
        network = self.context.network
        weights = {layer.name: self.original[layer.name] for layer in network.prunable_weights}
        axes = get_block_axes(network.layer_weights, self.context.settings.method.block)
        prunable_costs = {name: costs[name] for name in weights}
        return FixedMaskPruning(weights, self.lowest, budget, axes, prunable_costs).masks

    def _time_masks(self, masks: Sequence[Masks]) -> list[tuple[Mapping[str, int], FastTiming]]:
        """Return the nonzeros and times of fast files; those that convert no layer are left out."""
        network = self.context.network
        networks = [apply_file_masks(network, each) for each in masks]
        points: list[tuple[Mapping[str, int], FastTiming]] = []
        for weights, timing in zip(networks, self.timer.time_files(networks), strict=True):
            if timing is None:
                continue
            arrays = network.file.model.with_weights(weights).get_arrays(
                layer.name for layer in network.layer_weights
            )
            nonzeros = {name: int(np.count_nonzero(array)) for name, array in arrays.items()}
            points.append((nonzeros, timing))
        return points


def _fit_line(costs: Array, ratios: Array, target: float) -> tuple[float, float]:
    """Return slope and constant of ratios over costs; points near the target count most.

    Raises:
        InputError: Files do not get slower with more weights.
    """
    nearness = 1 / (MIN_DISTANCE + np.abs(ratios - target))
    slope, constant = np.polyfit(costs, ratios, 1, w=nearness).tolist()
    if slope <= 0:
        raise InputError(
            "budget.target_latency cannot be planned: fast files do not get faster with fewer"
            " weights",
            "measure on an idle machine, or set another budget, such as --target-macs",
        )
    return slope, constant
