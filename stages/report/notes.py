"""Notes of a report about its networks and their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ltp_pipeline.results.schema_parts import FILE_REASON_PREFIX
from ltp_pipeline.settings.file_names import find_format

if TYPE_CHECKING:
    from ltp_pipeline.results.metric import Metric
    from ltp_pipeline.results.schema import NetworkResult


def describe_improvement(network: NetworkResult, metric: Metric) -> str | None:
    """Return a warning if the network is better than the original beyond chance, else None."""
    if network.drop_interval is None or network.drop_interval[1] >= 0:
        return None
    low, high = network.drop_interval
    return (
        f"the pruned network is better than the original by {metric.format_drop(-high)} to "
        f"{metric.format_drop(-low)} (95 % interval): the original was not trained to the end, or "
        "labels or preprocessing do not fit it; check them before you rely on a gate on the drop"
    )


def list_file_notes(
    file_notes: Iterable[str], network: NetworkResult, original_bytes: int
) -> list[str]:
    """Return the notes of a network's files, and notes about missing and large files."""
    skipped = {}
    for key, reason in network.reasons.items():
        if key.startswith(FILE_REASON_PREFIX):
            skipped[key.removeprefix(FILE_REASON_PREFIX)] = reason
    notes = [*file_notes, *describe_skipped_files(skipped)]
    for file in network.files:
        if file.encoding != "dense" and (file.bytes or 0) >= original_bytes:
            reason = "not smaller than the original: too few zeros for a sparse encoding"
            notes.append(f"{file.path}: {reason}")
    return list(dict.fromkeys(notes))


def describe_skipped_files(skipped: Mapping[str, str]) -> list[str]:
    """Return a note for each file that was not written; the reasons are by names of formats."""
    return [
        f"{find_format(name).file_name()} was not written: {reason}"
        for name, reason in skipped.items()
    ]
