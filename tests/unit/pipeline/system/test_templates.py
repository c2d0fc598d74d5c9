"""Templates are rendered as they stand, and a missing value is an error."""

from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from ltp_pipeline.system.templates import render_template


def test_render_template_statements_leave_no_lines_behind(tmp_path: Path) -> None:
    template = "# {{ title }}\n  {% for n in numbers %}\n{{ n | double }}\n  {% endfor %}\n"
    (tmp_path / "page.j2").write_text(template)
    values = {"title": "<T>", "numbers": [1, 2]}
    text = render_template(tmp_path, "page.j2", values, {"double": lambda n: 2 * n})
    assert text == "# <T>\n2\n4\n"


def test_render_template_escape_is_called_once_for_each_value(tmp_path: Path) -> None:
    (tmp_path / "macros.j2").write_text("{% macro bold(text) %}**{{ text }}**{% endmacro %}")
    page = '{% import "macros.j2" as macros %}{{ title }} {{ macros.bold(title) }} {{ safe }}'
    (tmp_path / "page.j2").write_text(page)
    values = {"title": "a*b", "safe": Markup("*")}

    def escape(value: str) -> str:
        return value.replace("*", "\\*")

    text = render_template(tmp_path, "page.j2", values, escape=escape)
    assert text == "a\\*b **a\\*b** *\n"


def test_render_template_searches_all_folders(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "one.j2").write_text('one {% include "two.j2" %}')
    (folders[1] / "two.j2").write_text("two")
    assert render_template(folders, "one.j2", {}) == "one two\n"


def test_render_template_missing_value_raises(tmp_path: Path) -> None:
    (tmp_path / "page.j2").write_text("{{ title }}")
    with pytest.raises(UndefinedError):
        render_template(tmp_path, "page.j2", {})


def test_render_template_skipped_parts_leave_one_empty_line(tmp_path: Path) -> None:
    template = "a\n\n{% if more %}\nb\n{% endif %}\n\n{% if more %}\nb\n{% endif %}\n\nc\n"
    (tmp_path / "page.j2").write_text(template)
    assert render_template(tmp_path, "page.j2", {"more": False}) == "a\n\nc\n"
