"""Types of the values in a report, which are validated strictly when a report is read."""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, ClassVar

from pydantic import AfterValidator, ConfigDict, Field

from ltp_pipeline.results import intervals
from ltp_pipeline.results.metric import DATACLASS_CONFIG
from ltp_pipeline.system.text import make_printable, quote_name

MAX_PATH_BYTES = 1024
MAX_NAME_BYTES = 255  # between two slashes of a path


def _check_order(ends: tuple[float, float]) -> tuple[float, float]:
    """Return the ends of an interval, or raise ValueError if they are reversed."""
    if ends[0] > ends[1]:
        raise ValueError(f"the interval is reversed: {ends[0]:g} to {ends[1]:g}")
    return ends


def _check_relative(path: str) -> str:
    """Return a path, or raise ValueError if it leads out of the folder of the report."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise ValueError(f"{quote_name(path)} is not a file in the report's folder")
    longest = max(len(part.encode()) for part in parts)
    if len(path.encode()) > MAX_PATH_BYTES or longest > MAX_NAME_BYTES:
        raise ValueError(f"the name {quote_name(path)} is too long")
    return path


def _check_printable(path: str) -> str:
    """Return a path, or raise ValueError if this program does not write such paths."""
    if make_printable(path) != path or "\\" in path:
        raise ValueError(f"the name {quote_name(path)} has characters that are not allowed")
    return _check_relative(path)


def _check_trail_path(path: str) -> str:
    """Return the path of a trail file, which is one folder up if the entry was picked."""
    _check_printable(path.removeprefix("../"))
    return path


Fraction = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
CountPair = tuple[Count, Count]
Interval = Annotated[tuple[float, float], AfterValidator(_check_order)]
RelativePath = Annotated[str, AfterValidator(_check_relative)]
PrintablePath = Annotated[str, AfterValidator(_check_printable)]
TrailPath = Annotated[str, AfterValidator(_check_trail_path)]


@dataclass(frozen=True)
class PairedCounts:
    """Numbers of samples that two networks classify correctly or incorrectly."""

    __pydantic_config__: ClassVar[ConfigDict] = DATACLASS_CONFIG

    both_correct: Count
    only_first_correct: Count
    only_second_correct: Count
    both_incorrect: Count

    @property
    def samples(self) -> int:
        """Number of all samples."""
        one_correct = self.only_first_correct + self.only_second_correct
        return self.both_correct + one_correct + self.both_incorrect

    @property
    def first_fraction(self) -> float | None:
        """Fraction of samples that the first network has correct; None without samples."""
        return self._divide(self.both_correct + self.only_first_correct)

    @property
    def second_fraction(self) -> float | None:
        """Fraction of samples that the second network has correct; None without samples."""
        return self._divide(self.both_correct + self.only_second_correct)

    def compute_interval(self, confidence: float = intervals.CONFIDENCE) -> Interval | None:
        """Return the interval of the drop from the first to the second; None without samples."""
        if not self.samples:
            return None
        return intervals.counted_interval(
            self.samples, self.only_first_correct, self.only_second_correct, confidence
        )

    def _divide(self, count: int) -> float | None:
        return count / self.samples if self.samples else None
