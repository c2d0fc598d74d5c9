"""Templates are rendered as they stand, and a missing value is an error."""

from pathlib import Path

import pytest
from jinja2 import UndefinedError

from ltp_pipeline.system.templates import render_template


def test_render_template_statements_leave_no_lines_behind(tmp_path: Path) -> None:
    template = "# {{ title }}\n  {% for n in numbers %}\n{{ n | double }}\n  {% endfor %}\n"
    (tmp_path / "page.j2").write_text(template)
    values = {"title": "<T>", "numbers": [1, 2]}
    text = render_template(tmp_path, "page.j2", values, {"double": lambda n: 2 * n})
    assert text == "# <T>\n2\n4\n"


def test_render_template_html_escapes_values(tmp_path: Path) -> None:
    (tmp_path / "page.html.j2").write_text("<p>{{ title }}</p>")
    text = render_template(tmp_path, "page.html.j2", {"title": "<T>"})
    assert text == "<p>&lt;T&gt;</p>\n"


def test_render_template_missing_value_raises(tmp_path: Path) -> None:
    (tmp_path / "page.j2").write_text("{{ title }}")
    with pytest.raises(UndefinedError):
        render_template(tmp_path, "page.j2", {})


def test_render_template_skipped_parts_leave_one_empty_line(tmp_path: Path) -> None:
    template = "a\n\n{% if more %}\nb\n{% endif %}\n\n{% if more %}\nb\n{% endif %}\n\nc\n"
    (tmp_path / "page.j2").write_text(template)
    assert render_template(tmp_path, "page.j2", {"more": False}) == "a\n\nc\n"
