"""LTP beside the baseline, in sentences: at the same compression, at the same accuracy, and who is ahead."""

from ltp_pipeline.gates.advice import OF_BASELINE
from ltp_pipeline.results.schema import BaselineResult, Report
from ltp_pipeline.stages.report import filters
from ltp_pipeline.system.text import pluralize

SAME = 5e-4  # gains that differ from 1 by less are shown as 1


def sentences(report: Report, for_handoff: bool = False) -> list[str]:
    """Where the baseline is ahead, that first; then both comparisons, as far as they were measured.

    `for_handoff` leaves out where to find it: who gets the handoff has no run.
    """
    baseline = report.baseline
    if baseline is None or baseline.exact_value is None:
        return []
    ahead = _ahead(report, baseline, for_handoff)
    found = [
        ahead,
        _at_equal_compression(report, baseline),
        _of_single_weights(report, baseline),
        _at_equal_accuracy(report, baseline),
    ]
    return [sentence for sentence in found if sentence]


def headline(report: Report) -> str:
    """The result in a few sentences."""
    told, found = filters.result(report), sentences(report)
    ahead = found[:1] if wins(report) else []
    return " ".join([*ahead, told, *found[len(ahead) :]])


def wins(report: Report) -> bool:
    """Whether the baseline is more accurate at the same compression, or sparser at the same accuracy."""
    return _is_more_accurate(report) or (
        report.baseline is not None and _is_sparser(report.baseline)
    )


def _is_more_accurate(report: Report) -> bool:
    difference = report.difference
    return difference is not None and difference.value is not None and difference.value < 0


def _is_sparser(baseline: BaselineResult) -> bool:
    return (
        baseline.gain is not None and baseline.gain_bound != "at least" and baseline.gain < 1 - SAME
    )


def _ahead(report: Report, baseline: BaselineResult, for_handoff: bool) -> str:
    if not wins(report):
        return ""
    words = filters.metric_words(report.metric)
    where = "within the same budget" if _within_budget(report, baseline) else f"at the same {words}"
    named = "" if for_handoff else "; baseline.curve in report.json names the file"
    sparser = f"it needs fewer weights {where}{named}."
    if not _is_more_accurate(report):
        return f"Global magnitude pruning wins here: {sparser}"
    stated = report.difference.interval if report.difference else None
    sure = "" if stated is None else ", beyond chance" if stated[1] < 0 else ", which may be chance"
    word = "wins" if stated is not None and stated[1] < 0 else "is ahead"
    told = f"Global magnitude pruning {word} here: it is better at the same compression{sure}."
    handed = "" if for_handoff else f" {OF_BASELINE} hands it over."
    return told + handed + (f" And {sparser}" if _is_sparser(baseline) else "")


def _at_equal_compression(report: Report, baseline: BaselineResult) -> str:
    metric = report.metric
    has = f"At LTP's compression {filters.network_words(baseline)} has {filters.value(metric, baseline.exact_value)}"
    if report.difference is None or report.difference.value is None:
        return f"{has}."
    value, stated = report.difference.value, report.difference.interval
    if value == 0:
        return f"{has}, as LTP has."
    place = "ahead" if value > 0 else "behind"
    chance = ", which may be chance" if stated is not None and stated[0] <= 0 <= stated[1] else ""
    spread = "" if stated is None else f" ({metric.shown_interval(stated)}{chance})"
    return f"{has}: LTP is {metric.shown_drop(abs(value))} {place}{spread}."


def _of_single_weights(report: Report, baseline: BaselineResult) -> str:
    """What blocks cost the baseline."""
    single = baseline.unstructured
    if single is None or single.accuracy is None:
        return ""
    return f"Global magnitude of as many single weights has {filters.value(report.metric, single.accuracy)}."


def _at_equal_accuracy(report: Report, baseline: BaselineResult) -> str:
    value, equal = baseline.gain, baseline.compression_at_equal_accuracy
    points = report.points
    if value is None or not points:
        return ""
    budget = _within_budget(report, baseline)
    as_good = "within the same budget" if budget else "as good"
    if baseline.gain_bound == "at least":
        mildest = filters.times(min(points).compression)
        said = f"No measured network of global magnitude, down to {mildest}, is {as_good}"
        fewer = (
            "LTP has fewer weights"
            if value < 1 + SAME
            else f"LTP has at least {_fewer(value)} weights"
        )
        return f"{said}: {fewer}.{_search(report, baseline)}"
    if baseline.gain_bound == "at most":
        sparsest = filters.times(max(points).compression)
        said = f"Global magnitude is still {as_good} at {sparsest}, the sparsest that was measured"
        need = (
            "no fewer weights"
            if value > 1 - SAME
            else f"at least {_number(1 / value)} times as many weights"
        )
        return f"{said}: LTP has {need}.{_search(report, baseline)}"
    if equal is None:
        return ""
    if baseline.budget is None:
        found = report.gain
        ends = [filters.times(p.compression) for p in found.ends] if found else []
        far = ", which are far apart" if found and found.is_wide else ""
        how = (
            ""
            if filters.times(equal) in ends
            else f" (interpolated between {' and '.join(ends)}{far})"
        )
        said = f"At LTP's {filters.metric_words(report.metric)} global magnitude reaches {filters.times(equal)}{how}"
    else:
        where = (
            "Within the same budget"
            if budget
            else f"At LTP's {filters.metric_words(report.metric)}"
        )
        said = (
            f"{where} the sparsest measured network of global magnitude has {filters.times(equal)}"
        )
    return f"{said}: LTP has {_fewer(value)} weights.{_search(report, baseline)}"


def _within_budget(report: Report, baseline: BaselineResult) -> bool:
    """Whether the two are compared within an accuracy budget, which LTP's network keeps."""
    drop = report.pruned.drop
    return baseline.budget is not None and (drop is None or drop <= baseline.budget)


def _fewer(gain: float) -> str:
    if abs(gain - 1) < SAME:
        return "as many"
    return f"{_number(gain)} times fewer" if gain > 1 else f"{_number(1 / gain)} times as many"


def _search(report: Report, baseline: BaselineResult) -> str:
    """How much was tried for each of the two, where one of them was searched for."""
    if (
        baseline.budget is None
        or report.pruned.num_trainings is None
        or baseline.num_trainings is None
    ):
        return ""
    ltp, other = (
        pluralize(report.pruned.num_trainings, "network"),
        pluralize(baseline.num_trainings, "training"),
    )
    return f" LTP's network was found by fine-tuning {ltp} of its trail, the baseline's by {other}."


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
