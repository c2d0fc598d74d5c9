"""log.jsonl: a line of JSON for every step that is told of. It is only shown, so what cannot be read is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ltp_pipeline.errors import InputError

MAX_NUMBER = 1 << 63  # a number of steps; more is no number of anything


class RunLog:
    """The log of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_begun = False

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line; one that a kill has cut off is ended first."""
        if self.path.exists() and not self.path.is_file():  # opening a pipe would wait for ever
            raise InputError(
                f"{self.path} is no regular file", "move it away, then run the same again"
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
        """Every line, and how many could not be read; of steps done twice after an interruption, the later."""
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
    """A number, nothing, or one for each layer."""
    if isinstance(value, dict):
        return all(map(_is_number, value.values()))
    return value is None or _is_number(value)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < MAX_NUMBER)
