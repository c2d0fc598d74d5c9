"""The metric: its name, unit and direction, and all arithmetic and words that depend on these.

Nothing else compares two values of a metric, takes their difference or writes one down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from pydantic import ConfigDict

from ltp_pipeline.system.text import format_number, format_percent, format_points, make_printable

# Absolute for a fraction, else relative: 0.95 - 0.94 is a little more than 0.01 in binary.
ROUNDING = 1e-9
# The default drop of a fraction; of another metric, relative to the original's value.
DEFAULT_BUDGET = 0.01
SAMPLE_FRACTIONS = ("top-1", "agreement")  # fractions of samples
RELATIVE_METRICS = ("agreement", "r2_vs_original")  # metrics that compare with the original
# Metrics of inferred tasks. All are fractions, and higher is better.
BUILT_IN_METRICS = ("top-1", "agreement", "r2_vs_original", "R²", "mIoU", "mean average precision")

# Unknown keys of a report are ignored. As attributes, they would take the place of methods.
DATACLASS_CONFIG = ConfigDict(
    extra="ignore",
    strict=True,
    allow_inf_nan=False,
    json_schema_serialization_defaults_required=True,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Metric:
    """Name, unit and direction of a metric; top-1 accuracy by default.

    Without labels, the metric is the fraction of samples with the same largest output as the
    original ("agreement"), or R² against the outputs of the original ("r2_vs_original").

    Attributes:
        name: Name of the metric.
        unit: Unit of its values; None for a number without a unit.
        higher_is_better: True if a higher value is better.
        is_fraction: True if values are at most 1, so that 0.01 is one percentage point.
    """

    __pydantic_config__: ClassVar[ConfigDict] = DATACLASS_CONFIG

    name: str = "top-1"
    unit: str | None = None
    higher_is_better: bool = True
    is_fraction: bool = True

    @property
    def is_accuracy(self) -> bool:
        """Whether the metric is the fraction of correct samples; only that is called accuracy."""
        return self.name == "top-1"

    @property
    def is_sample_fraction(self) -> bool:
        """Whether the metric is a fraction of samples, each of them correct or incorrect."""
        return self.name in SAMPLE_FRACTIONS

    @property
    def is_relative(self) -> bool:
        """Whether the metric compares with the original, so that it needs no labels."""
        return self.name in RELATIVE_METRICS

    def oriented_value(self, value: float) -> float:
        """Return the value, or its negative if lower is better."""
        return value if self.higher_is_better else -value

    def compute_drop(self, before: float, after: float) -> float:
        """Return how much worse the second value is; negative if it is better."""
        return self.oriented_value(before) - self.oriented_value(after)

    def find_worst_allowed(self, original: float, budget: float) -> float:
        """Return the worst value whose drop is within a budget."""
        return original - self.oriented_value(budget)

    def is_no_worse(self, value: float, least: float) -> bool:
        """Return whether a value is no worse than another, up to rounding."""
        return self.compute_drop(least, value) <= self.get_rounding(value, least)

    def find_best(self, items: Iterable[T], value: Callable[[T], float]) -> T:
        """Return the item with the best value."""
        return max(items, key=lambda item: self.oriented_value(value(item)))

    def find_worst(self, items: Iterable[T], value: Callable[[T], float]) -> T:
        """Return the item with the worst value."""
        return min(items, key=lambda item: self.oriented_value(value(item)))

    def get_rounding(self, *values: float) -> float:
        """Return the difference up to which these values count as equal."""
        return ROUNDING if self.is_fraction else ROUNDING * max(map(abs, values))

    def default_budget(self, original: float) -> float:
        """Return the largest drop that is allowed by default."""
        return DEFAULT_BUDGET * (1.0 if self.is_fraction else abs(original))

    @property
    def label(self) -> str:
        """Name and direction, for a table whose values have their unit."""
        return self.name if self.higher_is_better else f"{self.name}, lower is better"

    @property
    def described(self) -> str:
        """Name, unit and direction, for a table of bare numbers."""
        unit = f" in {self.unit}" if self.unit and not self.is_fraction else ""
        return f"{self.name}{unit}{self.label.removeprefix(self.name)}"

    @property
    def no_worse(self) -> str:
        """How a sentence states a limit: `at least` 91.32 %, `at most` 2.31 °C."""
        return "at least" if self.higher_is_better else "at most"

    def format_value(self, value: float) -> str:
        """Return a value as text, such as 91.32 % or 2.31 °C."""
        return format_percent(value) if self.is_fraction else self._format_number(value)

    def format_drop(self, value: float) -> str:
        """Return a difference as text, such as 0.45 percentage points or 0.04 °C."""
        if self.is_fraction:
            return f"{format_points(value)} percentage points"
        return self._format_number(value)

    def format_interval(self, interval: tuple[float, float]) -> str:
        """Return both ends of a difference, without the unit: −0.04 to 0.94."""
        show = format_points if self.is_fraction else format_number
        return f"{show(interval[0])} to {show(interval[1])}"

    @property
    def axis_unit(self) -> str | None:
        """Unit of the numbers at an axis."""
        return "%" if self.is_fraction else self.unit

    def to_axis_unit(self, value: float) -> float:
        """Return a value in the unit of an axis."""
        return 100 * value if self.is_fraction else value

    def _format_number(self, value: float) -> str:
        text = format_number(value)
        return f"{text} {self.unit}" if self.unit else text


@dataclass(frozen=True)
class ExtraMetric:
    """Value of a further metric, with name, unit and direction as in `Metric`."""

    __pydantic_config__: ClassVar[ConfigDict] = DATACLASS_CONFIG

    name: str
    value: float
    unit: str | None = None
    is_fraction: bool = True
    higher_is_better: bool = True

    @property
    def metric(self) -> Metric:
        """The metric of the value."""
        return Metric(self.name, self.unit, self.higher_is_better, self.is_fraction)

    @property
    def text(self) -> str:
        """The value with its unit."""
        return self.metric.format_value(self.value)


def name_validation_metric(metric: Metric) -> str:
    """Return the name of a metric of the validation split."""
    return f"{'accuracy' if metric.is_accuracy else make_printable(metric.name)} (val)"
