"""Render Jinja templates: pages, messages and settings files are text with a few fields."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def render_template(
    folders: Path | Sequence[Path],
    name: str,
    values: Mapping[str, Any],
    filters: Mapping[str, Callable[..., Any]] | None = None,
    escape: Callable[[Any], str] | None = None,
) -> str:
    """Render a template; a name that it uses and that has no value is an error.

    Args:
        folders: Folders of the template and of templates that it imports, searched in order.
        name: Name of the template.
        values: Values of the names in the template.
        filters: Functions that the template can call as filters, by name.
        escape: Function that escapes each value for the markup of the page; None for plain text.
            Results of macros and values of the type `Markup` are not escaped again.

    Returns:
        The text, which ends with one line break. Lines that hold only a statement or a comment of
        Jinja leave nothing behind. Several empty lines become one, so that a template need not care
        which of its parts are left out.
    """
    # Not every command needs Jinja.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def escape_value(value: Any) -> Any:
        if escape is None or hasattr(value, "__html__"):
            return value
        return Markup(escape(value))  # noqa: S704

    environment = Environment(
        loader=FileSystemLoader(folders),
        # Macros return Markup, which is not escaped again, only if autoescape is on.
        autoescape=escape is not None,  # noqa: S701 - settings and scripts are no markup
        finalize=escape_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters or {})
    text = environment.get_template(name).render(values)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"
