"""Compare the pruned network with the original and the baseline: facts for the templates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ltp_pipeline.graph.layer_weights import MIN_LAYER_FRACTION
from ltp_pipeline.results.schema import BaselineDifference
from ltp_pipeline.stages.report import filters
from ltp_pipeline.system.text import format_ratio

if TYPE_CHECKING:
    from ltp_pipeline.results.gain import Gain
    from ltp_pipeline.results.schema import BaselineResult, Report
    from ltp_pipeline.results.schema_parts import QuantizationInfo

GAIN_TOLERANCE = 5e-4  # gains that differ from 1 by less are shown as 1


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

    def __init__(self, report: Report, baseline: BaselineResult) -> None:
        difference = report.difference or BaselineDifference()
        self.difference = difference.value
        self.interval = difference.interval
        self.bound = baseline.gain_bound
        self.baseline_compression = _find_baseline_compression(report, baseline)
        self.gain = None if self.baseline_compression is None else baseline.gain
        budget = baseline.budget
        self.has_budget = budget is not None
        self.is_within_budget = budget is not None and (report.pruned.drop or 0.0) <= budget
        self.is_interpolation_wide = report.gain is not None and report.gain.is_wide
        self.interpolated_between: tuple[float, ...] = ()
        if not self.has_budget:
            self.interpolated_between = _list_ends(report.gain, self.baseline_compression)

    @property
    def may_be_chance(self) -> bool:
        """True if the interval of the difference contains 0."""
        return self.interval is not None and self.interval[0] <= 0 <= self.interval[1]

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
    return BaselineComparison(report, baseline)


def _find_baseline_compression(report: Report, baseline: BaselineResult) -> float | None:
    """Return the compression of the baseline that the gain refers to."""
    if baseline.gain is None or not report.points:
        return None
    compressions = [point.compression for point in report.points]
    if baseline.gain_bound == "at least":
        return min(compressions)
    if baseline.gain_bound == "at most":
        return max(compressions)
    return baseline.compression_at_equal_accuracy


def _list_ends(gain: Gain | None, compression: float | None) -> tuple[float, ...]:
    """Return the compressions that the baseline's was interpolated between.

    Empty if the compression is shown with the same digits as one of them.
    """
    if gain is None or compression is None:
        return ()
    ends = tuple(point.compression for point in gain.ends)
    if format_ratio(compression) in map(format_ratio, ends):
        return ()
    return ends


def has_few_layer_weights(report: Report) -> bool:
    """Return True if the layer weights are only a small part of the model.

    Their compression then says little about the size of the model.
    """
    elements, total = report.model.layer_elements, report.model.float_elements
    return elements is not None and elements < MIN_LAYER_FRACTION * (total or 0)


def list_quantizations(report: Report) -> list[tuple[str, QuantizationInfo]]:
    """Return how the int8 files of each network were quantized, with the name of its method."""
    quantizations = []
    for network in report.networks:
        infos = [file.quantization for file in network.files if file.quantization is not None]
        if infos:
            quantizations.append((filters.name_method(network), infos[0]))
    return quantizations


def group_reasons(report: Report) -> list[tuple[str, str, str]]:
    """Return why values are null, as rows of keys, networks and reason.

    Keys of one network with the same reason share a row, and networks with equal keys and reason.
    """
    networks = {"original": report.original.reasons}
    for network in report.networks:
        networks[filters.name_method(network)] = network.reasons
    groups: dict[tuple[str, str], list[str]] = {}
    for name, reasons in networks.items():
        for reason in dict.fromkeys(reasons.values()):
            keys = ", ".join(key for key in reasons if reasons[key] == reason)
            groups.setdefault((keys, reason), []).append(name)
    return [(keys, ", ".join(names), reason) for (keys, reason), names in groups.items()]
