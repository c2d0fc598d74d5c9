"""Types of values in a report, each read strictly: fractions, counts, names and intervals."""

from dataclasses import astuple, dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, ConfigDict, Field

from ltp_pipeline.results import intervals
from ltp_pipeline.results.metric import DATACLASS_CONFIG
from ltp_pipeline.system.text import make_printable, quote_name

LONGEST_NAME, LONGEST_PART = 1024, 255  # bytes of a file's name, and between two slashes of it


def make_field(default: Any, description: str, **limits: Any) -> Any:
    """Return a key of the report.

    Args:
        default: Value of a report without the key.
        description: Description in the JSON Schema.
        **limits: Limits of its values, as in `pydantic.Field`.
    """
    return Field(default=default, description=description, **limits)


def _check_order(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] > ends[1]:
        raise ValueError(f"an interval must start at its lower end, got {ends[0]:g} to {ends[1]:g}")
    return ends


def _check_path(name: str) -> str:
    """Raise ValueError unless a name is that of a file in the report's folder or below."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise ValueError(
            f"a path must lead to a file in the report's folder, got {quote_name(name)}"
        )
    longest = max(len(part.encode()) for part in parts)
    if len(name.encode()) > LONGEST_NAME or longest > LONGEST_PART:
        raise ValueError(
            f"a path must have at most {LONGEST_NAME} bytes, and {LONGEST_PART} between slashes,"
            f" got {quote_name(name)}"
        )
    return name


def _check_own_name(name: str) -> str:
    """Raise ValueError unless a name is that of a file that this program writes."""
    if make_printable(name) != name or "\\" in name:
        raise ValueError(
            f"a path must have no backslash or control character, got {quote_name(name)}"
        )
    return _check_path(name)


def _check_trail_name(name: str) -> str:
    """Check a file name like `_check_own_name`, but allow a leading `../`.

    The run of a picked entry lies inside the run that has the trail.
    """
    _check_own_name(name.removeprefix("../"))
    return name


Fraction = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
CountPair = tuple[Count, Count]
NumberType = Annotated[str, Field(pattern=r"^(bool|u?int(8|16|32|64)|float(16|32|64|96|128))$")]
Interval = Annotated[tuple[float, float], AfterValidator(_check_order)]
RelativePath = Annotated[str, AfterValidator(_check_path)]
PrintablePath = Annotated[str, AfterValidator(_check_own_name)]
TrailPath = Annotated[str, AfterValidator(_check_trail_name)]


@dataclass(frozen=True)
class PairedCounts:
    """Numbers of test samples that both, only one, or neither of two networks have correct."""

    __pydantic_config__: ClassVar[ConfigDict] = DATACLASS_CONFIG

    both_correct: Count
    only_first_correct: Count
    only_second_correct: Count
    both_incorrect: Count

    @property
    def samples(self) -> int:
        """Number of samples."""
        return sum(astuple(self))

    @property
    def first_fraction(self) -> float | None:
        """Fraction of samples that the first network has correct."""
        return self._compute_fraction(self.only_first_correct)

    @property
    def second_fraction(self) -> float | None:
        """Fraction of samples that the second network has correct."""
        return self._compute_fraction(self.only_second_correct)

    def _compute_fraction(self, only_correct: int) -> float | None:
        return (self.both_correct + only_correct) / self.samples if self.samples else None

    def compute_interval(
        self, confidence: float = intervals.CONFIDENCE
    ) -> tuple[float, float] | None:
        """Return the interval of the drop from the first network to the second."""
        if not self.samples:
            return None
        return intervals.counted_interval(
            self.samples, self.only_first_correct, self.only_second_correct, confidence
        )
