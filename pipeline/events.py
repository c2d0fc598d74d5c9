"""The log as TensorBoard shows it: one curve for every number, one for every layer's threshold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltp_pipeline.errors import InputError

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

_PLACE = ("stage", "key", "epoch", "step")


class Events:
    """Event files in a folder, begun with the first line."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            import tensorboard  # type: ignore[import-untyped]  # noqa: F401 - found now, not in the middle of training
        except ImportError:
            raise InputError(
                "log.tensorboard is on and tensorboard is not installed", "pip install 'ltp-pipeline[tensorboard]'"
            ) from None

    @cached_property
    def _writer(self) -> SummaryWriter:
        from torch.utils.tensorboard.writer import SummaryWriter

        return SummaryWriter(str(self._folder))

    def add(self, line: Mapping[str, Any]) -> None:
        """Add the numbers of a log line at its step."""
        for name, value in numbers(line):
            self._writer.add_scalar(f"{line['key']}/{name}", value, line["step"])
        self._writer.flush()


def numbers(line: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a log line by its name; what says where in the run it belongs is left out."""
    for name, value in line.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and name not in _PLACE:
            yield f"{prefix}{name}", float(value)
