"""Render Jinja templates: pages, messages and settings files are text with a few fields."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def render_template(
    folder: Path,
    name: str,
    values: Mapping[str, Any],
    filters: Mapping[str, Callable[..., Any]] | None = None,
) -> str:
    """Render a template; a name that it uses and that has no value is an error.

    Args:
        folder: Folder of the template and of templates that it imports.
        name: Name of the template in that folder. In `*.html.j2`, values are escaped for HTML.
        values: Values of the names in the template.
        filters: Functions that the template can call as filters, by name.

    Returns:
        The text, which ends with one line break. Lines that hold only a statement or a comment of
        Jinja leave nothing behind. Several empty lines become one, so that a template need not care
        which of its parts are left out.
    """
    # Not every command needs Jinja.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters or {})
    text = environment.get_template(name).render(values)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"
