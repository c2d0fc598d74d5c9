"""The kinds of values that a report is made of, each read strictly: shares, counts, names, intervals, outcomes."""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, ClassVar

from pydantic import AfterValidator, ConfigDict, Field

from ltp_pipeline.results import intervals
from ltp_pipeline.results.metric import DATACLASS_CONFIG
from ltp_pipeline.system.text import make_printable, quote_name

LONGEST_NAME, LONGEST_PART = 1024, 255  # bytes of a file's name, and between two slashes of it


def _ordered(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] > ends[1]:
        raise ValueError(f"the interval is reversed: {ends[0]:g} to {ends[1]:g}")
    return ends


def _inside(name: str) -> str:
    """Refuse what is no name of a file in the report's folder or below."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise ValueError(f"{quote_name(name)} is no name of a file in the report's folder")
    if len(name.encode()) > LONGEST_NAME or any(
        len(part.encode()) > LONGEST_PART for part in parts
    ):
        raise ValueError(f"the name {quote_name(name)} is too long")
    return name


def _ours(name: str) -> str:
    """The same of a file that this program wrote."""
    if make_printable(name) != name or "\\" in name:
        raise ValueError(f"the name {quote_name(name)} has characters that no name of ours has")
    return _inside(name)


def _of_trail(name: str) -> str:
    """The same; the trail of an entry that was picked lies in the folder around."""
    _ours(name.removeprefix("../"))
    return name


Fraction = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
CountPair = tuple[Count, Count]
NumberType = Annotated[str, Field(pattern=r"^(bool|u?int(8|16|32|64)|float(16|32|64|96|128))$")]
Interval = Annotated[tuple[float, float], AfterValidator(_ordered)]
RelativePath = Annotated[str, AfterValidator(_inside)]
PrintablePath = Annotated[str, AfterValidator(_ours)]
TrailPath = Annotated[str, AfterValidator(_of_trail)]


@dataclass(frozen=True)
class PairedCounts:
    """Two networks on the same samples, each of them right or wrong: how many samples there are of each kind."""

    __pydantic_config__: ClassVar[ConfigDict] = DATACLASS_CONFIG

    both_correct: Count
    only_first_correct: Count
    only_second_correct: Count
    both_incorrect: Count

    @property
    def samples(self) -> int:
        """How many there are."""
        return (
            self.both_correct
            + self.only_first_correct
            + self.only_second_correct
            + self.both_incorrect
        )

    @property
    def first_fraction(self) -> float | None:
        """The share that the first network has right."""
        return (
            (self.both_correct + self.only_first_correct) / self.samples if self.samples else None
        )

    @property
    def second_fraction(self) -> float | None:
        """The share that the second network has right."""
        return (
            (self.both_correct + self.only_second_correct) / self.samples if self.samples else None
        )

    def compute_interval(
        self, confidence: float = intervals.CONFIDENCE
    ) -> tuple[float, float] | None:
        """Of the drop from the first to the second."""
        if not self.samples:
            return None
        return intervals.counted_interval(
            self.samples, self.only_first_correct, self.only_second_correct, confidence
        )
