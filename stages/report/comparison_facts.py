"""Compare the pruned network with the original and the baseline: facts for the templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ltp_pipeline.graph.layer_weights import MIN_LAYER_FRACTION
from ltp_pipeline.stages.report import filters

if TYPE_CHECKING:
    from ltp_pipeline.results.intervals import Interval
    from ltp_pipeline.results.schema import BaselineResult, Report
    from ltp_pipeline.results.schema_parts import QuantizationInfo

GAIN_TOLERANCE = 5e-4  # gains that differ from 1 by less are shown as 1


@dataclass(frozen=True)
class BaselineComparison:
    """The pruned network next to the baseline.

    Attributes:
        difference: Metric of the pruned network minus that of the baseline at the same
            compression, in the metric's unit and so that positive is better.
        interval: 95 % interval of the difference.
        gain: Compression of the pruned network / compression of the baseline at equal accuracy.
        bound: Set if the gain is only known to be at least or at most this value.
        baseline_compression: Compression of the baseline that the gain refers to.
        interpolated_between: Compressions of the two measured points around
            `baseline_compression`; empty if it was measured itself.
        is_interpolation_wide: The two points are too far apart for an exact interpolation.
        has_budget: The baseline was searched for the sparsest network within a budget.
        is_within_budget: The pruned network keeps this budget, so the gain is that within it.
    """

    difference: float | None
    interval: Interval | None
    gain: float | None
    bound: str | None
    baseline_compression: float | None
    interpolated_between: tuple[float, ...]
    is_interpolation_wide: bool
    has_budget: bool
    is_within_budget: bool

    @property
    def is_significant(self) -> bool:
        """True if the interval of the difference does not contain 0."""
        return self.interval is not None and (self.interval[0] > 0 or self.interval[1] < 0)

    @property
    def is_baseline_better(self) -> bool:
        """True if the baseline has the better metric at the same compression."""
        return self.difference is not None and self.difference < 0

    @property
    def is_baseline_smaller(self) -> bool:
        """True if the baseline needs fewer weights for the same accuracy."""
        if self.gain is None or self.bound == "at least":
            return False
        return self.gain < 1 - GAIN_TOLERANCE

    @property
    def is_gain_one(self) -> bool:
        """True if both need the same number of weights for the same accuracy."""
        return self.gain is not None and abs(self.gain - 1) < GAIN_TOLERANCE


def compare_with_baseline(report: Report) -> BaselineComparison | None:
    """Return how the pruned network compares with the baseline; None if that was not measured."""
    baseline = report.baseline
    if baseline is None or baseline.exact_value is None:
        return None
    difference = report.difference
    gain = report.gain
    ends: tuple[float, ...] = ()
    if gain is not None and baseline.budget is None:
        ends = tuple(point.compression for point in gain.ends)
    at_equal = _baseline_compression(report, baseline)
    if at_equal is not None and _is_shown_as(at_equal, ends):
        ends = ()
    drop = report.pruned.drop
    has_budget = baseline.budget is not None
    return BaselineComparison(
        difference=None if difference is None else difference.value,
        interval=None if difference is None else difference.interval,
        gain=None if at_equal is None else baseline.gain,
        bound=baseline.gain_bound,
        baseline_compression=at_equal,
        interpolated_between=ends,
        is_interpolation_wide=gain is not None and gain.is_wide,
        has_budget=has_budget,
        is_within_budget=has_budget and (drop is None or drop <= (baseline.budget or 0.0)),
    )


def _baseline_compression(report: Report, baseline: BaselineResult) -> float | None:
    """Return the compression of the baseline that the gain refers to."""
    if baseline.gain is None or not report.points:
        return None
    if baseline.gain_bound == "at least":
        return min(point.compression for point in report.points)
    if baseline.gain_bound == "at most":
        return max(point.compression for point in report.points)
    return baseline.compression_at_equal_accuracy


def _is_shown_as(compression: float, ends: Sequence[float]) -> bool:
    """Return True if the rounded compression is that of a measured point."""
    shown = filters.format_ratio(compression)
    return any(filters.format_ratio(end) == shown for end in ends)


def has_few_layer_weights(report: Report) -> bool:
    """Return True if the layer weights are only a small part of the model.

    Their compression then says little about the size of the model.
    """
    layers, total = report.model.layer_elements, report.model.float_elements
    return layers is not None and bool(total) and layers < MIN_LAYER_FRACTION * (total or 0)


def list_quantizations(report: Report) -> list[tuple[str, QuantizationInfo]]:
    """Return how the int8 files of each network were quantized, with the name of its method."""
    quantizations: dict[str, QuantizationInfo] = {}
    for network in report.networks:
        for file in network.files:
            if file.quantization is not None:
                quantizations.setdefault(filters.name_method(network), file.quantization)
    return list(quantizations.items())


def group_reasons(report: Report) -> list[tuple[str, str, str]]:
    """Return why values are null, as keys, networks and reason.

    Keys of one network with the same reason are one row, and networks with the same row, too.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    named = [("original", report.original.reasons)]
    named += [(filters.name_method(network), network.reasons) for network in report.networks]
    for name, reasons in named:
        for reason in dict.fromkeys(reasons.values()):
            keys = ", ".join(key for key in reasons if reasons[key] == reason)
            groups.setdefault((keys, reason), []).append(name)
    return [(keys, ", ".join(names), reason) for (keys, reason), names in groups.items()]
