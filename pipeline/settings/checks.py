"""Checks of settings against each other and against the metric.

Contradictions inside one section are checked by its class in schema.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.file_names import FAST, find_format
from ltp_pipeline.settings.schema import COST_KINDS

if TYPE_CHECKING:
    from ltp_pipeline.settings.schema import (
        BudgetSettings,
        ExportSettings,
        GateSettings,
        Settings,
    )


PACKED = "packed"  # the file that budget.target_bytes limits
# For each limit, its lowest value if the metric is a fraction, and whether it may be 1.
# A drop of 1 or more would let every result pass.
FRACTION_RANGES = {
    "accuracy_budget": (0, True),
    "min_accuracy": (0, True),
    "max_drop": (-1, False),
    "baseline_margin": (0, False),
    "int8_max_drop": (0, False),
}


class MetricUnit(Protocol):
    """Properties of a metric that limits in its unit depend on."""

    @property
    def is_fraction(self) -> bool:
        """True if the metric is a fraction."""

    @property
    def described(self) -> str:
        """Name, unit and direction of the metric."""


def check_metric_limits(
    metric: MetricUnit,
    gates: GateSettings,
    budget: BudgetSettings | None = None,
    export: ExportSettings | None = None,
) -> None:
    """Raise InputError if a limit of these settings makes no sense in the unit of the metric."""
    limits = {}
    for name, section in (("gates", gates), ("budget", budget), ("export", export)):
        for key, value in section or ():
            if key in FRACTION_RANGES:
                limits[f"{name}.{key}"] = value
    check_limit_units(metric, limits)


def check_limit_units(metric: MetricUnit, limits: Mapping[str, float | None]) -> None:
    """Raise InputError if a limit is not a number, or not a fraction although the metric is one.

    Args:
        metric: The metric that the limits are compared with.
        limits: Limits by key; the last part of a key is one of FRACTION_RANGES. None sets no limit.
    """
    for name, value in limits.items():
        if value is None:
            continue
        hint = f"the metric is {metric.described}; change {name}"
        if not math.isfinite(value):
            raise InputError(f"{name} must be a number, got {value}", hint)
        lowest, may_be_one = FRACTION_RANGES[name.rpartition(".")[2]]
        is_allowed = lowest <= value < 1 or (may_be_one and value == 1)
        if metric.is_fraction and not is_allowed:
            if abs(value) > 1:
                hint = f"{hint}: write {value / 100:g} for {value:g} %"
            upper_end = "at most" if may_be_one else "less than"
            raise InputError(
                f"{name} must be at least {lowest} and {upper_end} 1, got {value:g}", hint
            )


def check_lambda(settings: Settings) -> None:
    """Raise InputError if λ is set together with a budget or with blocks."""
    method = settings.method
    if method.lambda_ is None:
        return
    if method.block is not None:
        raise InputError(
            f"method.block = {method.block!r} needs a budget, and method.lambda is set",
            "replace method.lambda by a budget, or remove method.block",
        )
    budgets = [f"budget.{name}" for name, value in settings.budget if value is not None]
    if budgets:
        raise InputError(
            f"{budgets[0]} and method.lambda contradict each other",
            "remove one of them: both decide how much is pruned",
        )


def check_contradictions(settings: Settings) -> None:
    """Raise InputError if settings exclude a passed gate or a requested file before training."""
    check_baseline_mode(settings)
    _check_best(settings)
    _check_quantization(settings)
    gates = settings.gates
    target = settings.budget.requested_compression
    required = max(gates.min_compression or 1.0, 1 / (1 - (gates.min_sparsity or 0.0)))
    # The tolerance keeps rounding from rejecting a target that just meets its gate.
    if target is not None and target < required * (1 - 1e-9):
        raise InputError(
            f"the budget prunes to {target:g}×, and gates.min_compression or gates.min_sparsity"
            f" requires {required:g}×",
            "raise the target in [budget], or lower the gate",
        )
    _check_cost_gates(settings)
    _check_cost_file(settings)


def _check_cost_gates(settings: Settings) -> None:
    """Raise InputError if a budget of a cost allows more than a gate on the same cost."""
    budget = settings.budget
    limits = {
        "target_macs": ("max_macs", settings.gates.max_macs),
        "target_bytes": ("max_bytes", _get_file_limit(settings.gates.max_bytes, PACKED)),
        "target_latency": (
            "max_latency_ratio",
            _get_file_limit(settings.gates.max_latency_ratio, find_format(FAST).name),
        ),
    }
    key = budget.cost_key
    if key is None:
        return
    gate, limit = limits[key]
    target = getattr(budget, key)
    if key == "target_bytes" and target < 1:  # a fraction of a file that is not read yet
        return
    if limit is not None and target > limit * (1 + 1e-9):
        raise InputError(
            f"budget.{key} is {target:g}, and gates.{gate} requires at most {limit:g}",
            f"lower budget.{key}, or raise the gate",
        )


def _get_file_limit(limits: float | Mapping[str, float] | None, name: str) -> float | None:
    """Return the limit of a file by name; a limit without a name is one of all files."""
    return limits.get(name) if isinstance(limits, Mapping) else limits


def _check_cost_file(settings: Settings) -> None:
    """Raise InputError if the file by which a budget is measured is not requested."""
    if settings.budget.target_bytes is not None and PACKED not in settings.export.formats:
        raise InputError(
            "budget.target_bytes is the size of the packed file, and export.formats has none",
            "add --export packed",
        )
    if settings.budget.target_latency is not None and not settings.export.has_fast:
        raise InputError(
            "budget.target_latency is the latency of the fast file, and export.formats has none",
            "add --export fast",
        )


def check_baseline_mode(settings: Settings) -> None:
    """Raise InputError if a gate needs more of the baseline than is measured."""
    gates = settings.gates
    mode = settings.baseline.mode
    key = settings.budget.cost_key
    if key is not None:
        cost = COST_KINDS[key]
        if gates.min_gain is not None:
            raise InputError(
                f"gates.min_gain compares numbers of weights, and budget.{key} counts {cost}",
                f"remove --min-gain, or set --beat-baseline, which compares at equal {cost}",
            )
        if mode == "curve":
            raise InputError(
                'baseline.mode = "curve" compares numbers of weights, and'
                f" budget.{key} counts {cost}",
                f"set --baseline quick, which measures the baseline at equal {cost}",
            )
    if gates.beat_baseline and mode == "none":
        raise InputError(
            f'gates.beat_baseline needs the baseline, and baseline.mode is "{mode}"',
            "remove --beat-baseline, or set --baseline to quick, curve or auto",
        )
    if gates.min_gain is not None and mode in ("quick", "gradual", "none"):
        raise InputError(
            f'gates.min_gain needs the curve of the baseline, and baseline.mode is "{mode}"',
            "remove --min-gain, or set --baseline curve",
        )


def _check_best(settings: Settings) -> None:
    """Raise InputError if the best network is requested, and there is none to choose from."""
    if settings.export.best and settings.baseline.mode == "none":
        raise InputError(
            'export.best compares with a baseline, and baseline.mode is "none"',
            "remove --best, or set --baseline to quick, gradual, curve or auto",
        )


def _check_quantization(settings: Settings) -> None:
    """Raise InputError if there is nothing to train on in 8 bits, or no epoch for it."""
    if not settings.train.quantization_aware:
        return
    if not settings.export.has_int8:
        raise InputError(
            "train.quantization_aware needs an int8 file, and export.formats has none",
            "add --export int8, or remove train.quantization_aware",
        )
    if settings.train.finetune_epochs == 0:
        raise InputError(
            "train.quantization_aware takes half of the epochs of fine-tuning, and"
            " train.finetune_epochs is 0",
            "raise --finetune-epochs, or remove train.quantization_aware",
        )
