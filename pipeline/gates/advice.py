"""Suggest changes after a gate failed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ltp_pipeline.results.schema import IS_BASELINE, IS_DELIVERED

if TYPE_CHECKING:
    from ltp_pipeline.results.schema import Report
    from ltp_pipeline.results.schema_parts import GateResult
    from ltp_pipeline.settings.schema import GateSettings

MORE_ACCURATE = (
    "train longer (--epochs, --finetune-epochs), or finish a less compressed network of the trail"
    " (`ltp-pipeline trail RUN` lists them, `ltp-pipeline pick RUN ENTRY` finishes one)"
)
SPARSER = (
    "prune more, with --target-compression {compression:g} at least; `ltp-pipeline inspect` lists"
    " weights that are not pruned"
)
SUGGESTIONS = {
    "min_accuracy": MORE_ACCURATE,
    "max_drop": MORE_ACCURATE,
    "min_sparsity": SPARSER,
    "min_compression": SPARSER,
    "min_model_compression": SPARSER,
    "max_macs": "prune more, with --target-macs {limit:g} at most; `ltp-pipeline inspect` lists"
    " weights that are not pruned",
    "beat_baseline": "train longer (--epochs, --finetune-epochs), or measure on more test samples",
    "min_gain": "train longer (--epochs, --finetune-epochs), or deliver the baseline:"
    " baseline.curve in report.json names its files",
    "max_bytes": "write packed files (`ltp-pipeline export RUN --format packed`), round their"
    " weights (--weight-storage fp16 or int8), or prune more, with --target-bytes {limit:.0f}",
    "max_latency_ratio": "measure on an idle machine, or name the file that must be fast, such as"
    " fast=0.8 (`ltp-pipeline export RUN --format fast` writes it): zeros alone save no time;"
    " --target-latency prunes until that file is fast enough",
    "min_layer_density": "raise method.min_layer_density to {limit:g}, or exclude the layer from"
    " pruning (--exclude)",
}
SUGGESTIONS_FOR_MISSING_VALUES = {
    "beat_baseline": "run again with the baseline: --baseline quick",
    "min_gain": "run again with the curve of the baseline: --baseline curve",
}


def suggest_fix(result: GateResult, report: Report, gates: GateSettings) -> str:
    """Return a suggestion for passing a gate.

    Args:
        result: The result of the gate, which failed.
        report: The report that was evaluated.
        gates: The limits that it was evaluated with.
    """
    name, _, file_name = result.name.partition(" ")
    if result.value is None:
        if name in SUGGESTIONS_FOR_MISSING_VALUES:
            reason = report.reasons.get("baseline")
            if reason in (IS_BASELINE, IS_DELIVERED):
                return f"remove the gate: {reason}; the report of the run compares both networks"
            if name == "min_gain" and report.cost_key is not None:
                return f"remove the gate: budget.{report.cost_key} has one point of the baseline"
            return SUGGESTIONS_FOR_MISSING_VALUES[name]
        if file_name:
            return f"write the file with --export {file_name}, or remove the gate"
        return "run the same command again with this version, which measures the value"
    limit = 0.0
    if isinstance(result.limit, int | float):
        limit = result.limit
    if gates.confidence is not None and _passes_without_interval(result, limit, report):
        return (
            "measure on more test samples, or remove --confidence: the value itself meets the limit"
        )
    percent = 100 * limit
    if name == "min_sparsity":
        percent = 100 / (1 - limit)
    # Rounded up to two digits, so that the suggested target is not below the limit.
    compression = math.ceil(percent) / 100
    return SUGGESTIONS[name].format(limit=limit, compression=compression)


def _passes_without_interval(result: GateResult, limit: float, report: Report) -> bool:
    """Return True if only the unfavorable end of the interval misses the limit."""
    value = result.value or 0.0
    if result.name == "min_accuracy":
        return report.metric.is_no_worse(value, limit)
    if result.name == "max_drop":
        return value <= limit
    return result.name == "beat_baseline" and value > limit
