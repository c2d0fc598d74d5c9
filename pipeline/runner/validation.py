"""Compare the trained networks of a run on the validation split, paired by sample, in torch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ltp_pipeline.results.complete import complete_leads
from ltp_pipeline.results.intervals import UNDEFINED
from ltp_pipeline.results.schema import (
    GRADUAL_METHOD,
    LTP_METHOD,
    MAGNITUDE_METHOD,
    NetworkComparison,
    ValidationLead,
)
from ltp_pipeline.run_directory.names import GRADUAL
from ltp_pipeline.runner.networks import load_saved_network
from ltp_pipeline.settings.schema import BaselineSettings
from ltp_pipeline.stages import baseline
from ltp_pipeline.stages.measure.network import explain_missing_counts
from ltp_pipeline.stages.report.assemble import ComparedNetworks
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.system import distributed
from ltp_pipeline.tasks.evaluator import count_pairs

if TYPE_CHECKING:
    from ltp_pipeline.graph.tensors import Weights
    from ltp_pipeline.system.arrays import Array

NONE_BETTER = "no baseline is better than LTP's network beyond noise"


def list_weights(settings: BaselineSettings) -> dict[str, str]:
    """Return the names of the saved weights of the networks that may be delivered, by method."""
    return {
        LTP_METHOD: "pruned",
        MAGNITUDE_METHOD: baseline.point_key(1, settings),
        GRADUAL_METHOD: baseline.point_key(GRADUAL, settings),
    }


def compare_networks(context: RunContext) -> ComparedNetworks:
    """Compare the networks of a run whose final weights are saved. LTP's must be among them."""
    task = context.task
    evaluator = context.make_evaluator(task)
    values: dict[str, float] = {}
    statistics: dict[str, Array] = {}
    for method, name in list_weights(context.settings.baseline).items():
        saved = load_saved_network(context, name)
        if saved is not None:
            compute_outputs = partial(context.compute_outputs, saved[0].state)
            accuracy, statistics[method] = evaluator(compute_outputs, context.data.val)
            values[method] = accuracy.value
    leads = []
    for method in list(statistics)[1:]:
        pair = (statistics[method], statistics[LTP_METHOD])
        interval = task.compute_drop_interval(*pair)
        counts = count_pairs(task, *pair)
        reasons = explain_missing_counts(counts)
        if interval is None:
            reasons["interval"] = UNDEFINED
        lead = ValidationLead(
            method=method, interval=interval, paired_counts=counts, reasons=reasons
        )
        leads.append(lead)
    comparison = NetworkComparison(baselines=tuple(leads))
    comparison = complete_leads(comparison, values, task.metric)
    if comparison.better is None:
        reason = NONE_BETTER
        if all(lead.interval is None for lead in comparison.baselines):
            reason = UNDEFINED
        comparison = comparison.replace(reasons={"better": reason})
    return ComparedNetworks(values, comparison)


def find_best_method(context: RunContext) -> str:
    """Return the method of the best network whose final weights are saved, in all processes.

    This is LTP, unless a baseline is better beyond noise. It is always LTP if the budget is
    measured on a file: only LTP's network was fitted to it.
    """
    methods = list(list_weights(context.settings.baseline))
    costs = context.weight_costs
    if costs is not None and costs.meet_target is not None:
        return LTP_METHOD
    number = 0
    if distributed.is_main_process():
        better = compare_networks(context).comparison.better
        number = 0 if better is None else methods.index(better.method)
    return methods[int(distributed.broadcast_from_main(float(number)))]


def load_weights(context: RunContext, method: str) -> Weights:
    """Return the saved weights of a network, as a file has them."""
    saved = load_saved_network(context, list_weights(context.settings.baseline)[method])
    assert saved is not None  # noqa: S101 - the network was compared with the others
    return saved[1]
