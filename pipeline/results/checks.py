"""What a report says twice must agree: a contradiction is bad input, with both values.

A gate does not judge a value that nothing in the report bears out: `borne_out` leaves it out, and it counts as not
measured.
"""

from typing import Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.gates.evaluation import make_gate_settings
from ltp_pipeline.results.derivations import ConsistencyCheck, claims, ratio_of, same
from ltp_pipeline.results.schema import FileLatencyResult, NetworkResult, Report
from ltp_pipeline.settings.checks import check_metric_limits
from ltp_pipeline.system.text import quote_name

REMEDY = "the report was edited or damaged: give the one that `ltp-pipeline run` wrote"
UNFOUNDED = "nothing else in the report bears it out"
MOST_SHOWN = 120  # characters of a value
JUDGED = ("accuracy", "drop", "drop_interval", "compression", "model_compression", "sparsity")


def require_consistent(report: Report, where: str) -> None:
    """Refuse a report that contradicts itself, or whose own limits are none."""
    check_metric_limits(
        report.metric, make_gate_settings(report.settings.get("gates", {}), strict=True)
    )
    for claim in claims(report):
        refuse(claim, where)


def refuse(claim: ConsistencyCheck, where: str) -> None:
    """Refuse a claim that is false, with both values."""
    if (
        claim.stated is not None
        and claim.derived is not None
        and not same(claim.stated, claim.derived)
    ):
        stated, derived = (
            quote_name(str(value), MOST_SHOWN)[1:-1] for value in (claim.stated, claim.derived)
        )
        what = f"{where} contradicts itself: {claim.key} is {stated}, but by {claim.source} it is {derived}"
        raise InputError(what, REMEDY)


def borne_out(report: Report) -> Report:
    """The report without values that gates judge and that nothing else in it bears out."""
    unfounded = {
        claim.key for claim in claims(report) if claim.stated is not None and claim.derived is None
    }

    def cleared(network: NetworkResult, name: str) -> NetworkResult:
        gone = [key for key in JUDGED if f"{name}.{key}" in unfounded]
        files = tuple(
            file.model_copy(update={"latency": tuple(_founded(entry) for entry in file.latency)})
            for file in network.files
        )
        reasons = {**network.reasons, **dict.fromkeys(gone, UNFOUNDED)}
        return network.model_copy(
            update={**dict.fromkeys(gone), "files": files, "reasons": reasons}
        )

    changes: dict[str, Any] = {"pruned": cleared(report.pruned, "pruned")}
    if report.baseline is not None:
        changes["baseline"] = cleared(report.baseline, "baseline")
    if report.difference is not None and "difference.interval" in unfounded:
        changes["difference"] = report.difference.model_copy(update={"interval": None})
    return report.model_copy(update=changes)


def _founded(entry: FileLatencyResult) -> FileLatencyResult:
    return entry.model_copy(update={"ratio": ratio_of(entry)})
