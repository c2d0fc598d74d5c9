"""Write the log for TensorBoard: a curve for each number, and one for each layer's threshold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltp_pipeline.errors import InputError

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

_PLACE = ("stage", "key", "epoch", "step")


class TensorBoardLog:
    """Event files in a folder, created with the first line."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # One for each phase, because the steps of each count from zero.
        self._writers: dict[str, SummaryWriter] = {}
        try:
            import tensorboard  # type: ignore[import-untyped]  # noqa: F401 - found now, not in the middle of training
        except ImportError:
            raise InputError(
                "log.tensorboard is on and tensorboard is not installed",
                "pip install 'ltp-pipeline[tensorboard]'",
            ) from None

    def add_line(self, line: Mapping[str, Any]) -> None:
        """Add the numbers of a log line at its step; repeated steps replace earlier ones."""
        phase = line["key"]
        if phase not in self._writers:
            from torch.utils.tensorboard.writer import SummaryWriter

            self._writers[phase] = SummaryWriter(str(self._folder / phase), purge_step=line["step"])
        for name, value in iter_numbers(line):
            self._writers[phase].add_scalar(name, value, line["step"])
        self._writers[phase].flush()


def iter_numbers(line: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield name and value of every number of a log line, except for its position in the run."""
    for name, value in line.items():
        if isinstance(value, Mapping):
            yield from iter_numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and name not in _PLACE:
            yield f"{prefix}{name}", float(value)
