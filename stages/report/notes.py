"""What a report tells in words of what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ltp_pipeline.settings.file_names import find_format

if TYPE_CHECKING:
    from ltp_pipeline.results import schema
    from ltp_pipeline.results.metric import Metric
    from ltp_pipeline.results.records import MeasuredNetwork


def unlikely_gain(pruned: schema.NetworkResult, metric: Metric) -> str | None:
    """A warning where pruning seems to have made the network better, and not by chance."""
    if pruned.drop_interval is None or pruned.drop_interval[1] >= 0:
        return None
    low, high = pruned.drop_interval
    least, most = metric.shown_drop(-high), metric.shown_drop(-low)
    return (
        f"the pruned network is better than the original by {least} to {most}, which is no chance: it "
        "was trained further, or the labels or the preparation of samples do not fit the original; "
        "check both before you trust a gate on the drop"
    )


def file_notes(m: MeasuredNetwork, pruned: schema.NetworkResult, original: int) -> list[str]:
    """What is told of the files of a network, beside an original of so many bytes."""
    large = [f.path for f in pruned.files if f.encoding != "dense" and (f.bytes or 0) >= original]
    said = f"{', '.join(large)}: not smaller than the original, because so few zeros do not pay for writing places down"
    notes = dict.fromkeys(note for v in m.validations for note in v.file.notes)
    return [*notes, *left_out_notes(m.skipped), *([said] if large else [])]


def left_out_notes(left_out: Mapping[str, str]) -> list[str]:
    """What is told of files that were asked for and not written."""
    return [
        f"{find_format(name).file_name()} was not written: {why}" for name, why in left_out.items()
    ]
