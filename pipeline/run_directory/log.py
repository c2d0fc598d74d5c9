"""log.jsonl: one line of JSON for every logged step.

The log is only displayed, so lines that cannot be read are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ltp_pipeline.errors import InputError

MAX_NUMBER = 1 << 63  # no number of steps is larger


class RunLog:
    """The log of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_begun = False

    def append(self, line: Mapping[str, Any]) -> None:
        """Append a line; a line that was cut off by a kill is ended first."""
        if self.path.exists() and not self.path.is_file():  # opening a pipe would wait forever
            raise InputError(
                f"{self.path} is not a regular file", "move it away, then run the same again"
            )
        try:
            with self.path.open("ab+") as file:
                file.write(b"" if self._is_begun or _ends_with_newline(file) else b"\n")
                file.write(json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise InputError(
                f"cannot write {self.path}: {error.strerror}", "run the same again"
            ) from None
        self._is_begun = True

    def read(self) -> tuple[list[dict[str, Any]], int]:
        """Return all lines and the number of unreadable ones.

        Of a step that was repeated after an interruption, only the later line is returned.
        """
        if not self.path.is_file():
            return [], 0
        lines: dict[tuple[Any, ...], dict[str, Any]] = {}
        unreadable = 0
        for text in self.path.read_text(encoding="utf-8", errors="replace").split("\n"):
            line = _parse_line(text)
            if line is None:
                unreadable += bool(text)
                continue
            key = (line.get("key"), line.get("step"), "val_accuracy" in line)
            lines.pop(key, None)
            lines[key] = line
        return list(lines.values()), unreadable


def _ends_with_newline(file: Any) -> bool:
    if not file.seek(0, 2):
        return True
    file.seek(-1, 2)
    return bool(file.read(1) == b"\n")


def _parse_line(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not all(
        isinstance(line.get(name, ""), str) for name in ("stage", "key")
    ):
        return None
    if not _is_number(line.get("step")):
        return None
    rest = [value for name, value in line.items() if name not in ("stage", "key")]
    return line if all(map(_is_value, rest)) else None


def _is_value(value: object) -> bool:
    """Return whether a value is a number, null, or a number for each layer."""
    if isinstance(value, dict):
        return all(map(_is_number, value.values()))
    return value is None or _is_number(value)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < MAX_NUMBER)
