"""Write settings as TOML. Everything that writes TOML uses these functions."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def format_toml(settings: Mapping[str, Any]) -> str:
    """Return a mapping as a TOML document.

    Mappings become sections, also inside each other. TOML has no null, so keys with the value None
    are left out.
    """
    sections = ["\n".join(lines) for lines in _iter_sections(settings, ())]
    return "\n\n".join(sections) + "\n"


def format_section_name(*names: str) -> str:
    """Return the header of a TOML section, for example `[data.inputs."a.b"]`."""
    return f"[{'.'.join(map(format_key, names))}]"


def format_key(name: str) -> str:
    """Return a TOML key, quoted unless it has only letters, digits, `_` and `-`."""
    return name if _BARE_KEY.fullmatch(name) else format_value(name)


def format_value(value: Any) -> str:
    """Return a value as a TOML expression on one line. Mappings become inline tables."""
    if isinstance(value, Mapping):
        entries = [f"{format_key(key)} = {format_value(item)}" for key, item in value.items()]
        return f"{{ {', '.join(entries)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_value, value))}]"
    # JSON and TOML write numbers and strings alike, except that TOML wants DEL escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _iter_sections(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield the lines of a table, then those of each table inside it."""
    lines = [format_section_name(*path)] if path else []
    tables = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            tables[key] = value
        elif value is not None:
            lines.append(f"{format_key(key)} = {format_value(value)}")
    # The header of a table that only has tables inside it can be left out.
    if len(lines) > bool(path) or (path and not tables):
        yield lines
    for key, value in tables.items():
        yield from _iter_sections(value, (*path, key))
