"""Limits in the metric's unit: what can be told of them only once the metric is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from ltp_pipeline.errors import InputError

if TYPE_CHECKING:
    from ltp_pipeline.settings.schema import BudgetSettings, ExportSettings, GateSettings

# Of a metric that is a share, from where to where; drops of 1 or more would let everything pass.
OF_SHARES = {
    "accuracy_budget": (0.0, 1.0),
    "min_accuracy": (0.0, 1.0),
    "max_drop": (-1.0, 1.0),
    "baseline_margin": (0.0, 1.0),
    "int8_max_drop": (0.0, 1.0),
}


class MetricUnit(Protocol):
    """What has to be known of a metric to check limits in its unit."""

    @property
    def is_fraction(self) -> bool:
        """Whether the metric is a fraction."""

    @property
    def described(self) -> str:
        """Name and unit of the metric."""


BELOW = ("max_drop", "baseline_margin", "int8_max_drop")  # which must be less than the upper end


def check_metric_limits(
    metric: MetricUnit,
    gates: GateSettings,
    budget: BudgetSettings | None = None,
    export: ExportSettings | None = None,
) -> None:
    """Refuse a budget, gates or a limit of int8 files that cannot be meant in the unit of this metric."""
    given = {
        f"gates.{name}": getattr(gates, name)
        for name in ("min_accuracy", "max_drop", "baseline_margin")
    }
    given["budget.accuracy_budget"] = None if budget is None else budget.accuracy_budget
    given["export.int8_max_drop"] = None if export is None else export.int8_max_drop
    check_limit_units(metric, given)


def check_limit_units(metric: MetricUnit, limits: Mapping[str, float | None]) -> None:
    """Refuse what is no fraction where the metric is a share, above all percent; names end as in OF_SHARES."""
    for name, value in limits.items():
        if value is None:
            continue
        remedy = f"the metric is {metric.described}; correct the setting in ltp.toml or on the command line"
        if not math.isfinite(value):
            raise InputError(f"setting {name}: {value} is no number", remedy)
        key = name.rpartition(".")[2]
        low, high = OF_SHARES[key]
        if not metric.is_fraction or low <= value < high or (value == high and key not in BELOW):
            continue
        fraction = f"fraction from {low:g} to {'below 1' if key in BELOW else '1'}"
        if abs(value) > 1:
            fraction = f"fraction; if {value:g} % is meant, write {value / 100:g}"
        raise InputError(f"setting {name}: {value:g} is no {fraction}", remedy)
