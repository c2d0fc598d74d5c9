"""Sphinx configuration of the documentation.

Build it with `sphinx-build -W --keep-going -b html docs build/docs`.

Four reference pages are filled at build time. A line `<!-- generated: NAME -->` in a page is
replaced by the Markdown that the function `NAME` of `GENERATORS` yields: the commands from Typer,
the settings and the report keys from their pydantic models, the Python API from the public names.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from pygments.lexers.special import TextLexer
from typer import Context
from typer.main import get_command

import ltp_pipeline
from ltp_pipeline.cli import app

project = "ltp-pipeline"
author = "The ltp-pipeline authors"
project_copyright = "The ltp-pipeline authors, Apache License 2.0"
version = release = ltp_pipeline.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["Thumbs.db", ".DS_Store"]
default_role = "code"  # docstrings put code in single backticks
highlight_language = "text"  # indented blocks are shell commands and formulas
html_theme = "furo"
html_title = f"ltp-pipeline {release}"
html_show_sphinx = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3  # links to headings, as GitHub makes them

napoleon_use_ivar = True  # attributes are members too, which autodoc documents
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"

LARGEST_SHOWN_LIMIT = 1e15
# A name and its meaning in the section "Attributes" of a docstring, over several lines.
ATTRIBUTE = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
PLACEHOLDER = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def command_reference() -> Iterator[str]:
    """Yield a section for each command with its arguments and options."""
    for name, command in get_command(app.app).commands.items():
        yield f"## {name}\n\n{_as_text(command.help)}\n\n"
        context = Context(command)
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option"]
        usage = " ".join(_value_name(p, context) for p in arguments)
        yield f"```text\nltp-pipeline {name} {usage} [OPTIONS]\n```\n\n"
        yield _table_head("option", "value", "effect")
        for option in options:
            names = ", ".join(f"`{n}`" for n in (*option.opts, *option.secondary_opts))
            value = "" if getattr(option, "is_flag", False) else f"`{_value_name(option, context)}`"
            repeatable = ", repeatable" if option.multiple else ""
            yield f"| {names} | {value}{repeatable} | {_cell(option.help)} |\n"
        yield "\n"


def settings_reference() -> Iterator[str]:
    """Yield a table for each section of ltp.toml; with meanings if the schema has any."""
    sections = ltp_pipeline.Settings.model_json_schema()["$defs"]
    for section, field in ltp_pipeline.Settings.model_fields.items():
        properties = sections[field.annotation.__name__]["properties"]
        is_described = any("description" in value for value in properties.values())
        yield f"### `[{section}]`\n\n"
        yield _table_head("key", "value", "default", *["meaning"][:is_described])
        for key, value in properties.items():
            default = value.get("default")
            shown = "" if default in (None, [], {}) else f"`{json.dumps(default)}`"
            meaning = f" {_cell(value.get('description'))} |" if is_described else ""
            yield f"| `{key}` | {_type_name(value, {})}{_limits(value)} | {shown} |{meaning}\n"
        yield "\n"


def report_reference() -> Iterator[str]:
    """Yield a table of keys for each object of report.json."""
    schema = ltp_pipeline.Report.model_json_schema(mode="serialization")
    objects = {"report.json": schema, **schema["$defs"]}
    anchors = {name: re.sub(r"[^a-z0-9]", "", name.lower()) for name in objects}
    for name, definition in objects.items():
        if "properties" not in definition:
            continue
        description, _, attributes = definition.get("description", "").partition("Attributes:")
        meanings = dict(ATTRIBUTE.findall(attributes))
        yield f"({anchors[name]})=\n### {name}\n\n{_as_text(description)}\n\n"
        yield _table_head("key", "type", "meaning")
        for key, value in definition["properties"].items():
            meaning = _cell(value.get("description") or meanings.get(key))
            yield f"| `{key}` | {_type_name(value, anchors)} | {meaning} |\n"
        yield "\n"


def api_reference() -> Iterator[str]:
    """Yield autodoc directives for every public name: functions, then types, then errors."""
    public = {name: getattr(ltp_pipeline, name) for name in ltp_pipeline.__all__}
    functions = [name for name, value in public.items() if inspect.isfunction(value)]
    types = [
        name
        for name, value in public.items()
        if inspect.isclass(value) and not name.endswith("Settings")
    ]
    yield "## Functions\n\n"
    for name in functions:
        yield _directive(f".. autofunction:: ltp_pipeline.{name}")
    yield "## Types\n\n"
    for name in types:
        is_model = hasattr(public[name], "model_fields")  # its keys are on the page of the report
        members = "" if is_model else "\n   :members:\n   :undoc-members:"
        yield _directive(f".. autoclass:: ltp_pipeline.{name}{members}")
    yield "## Errors\n\n"
    yield _directive(".. automodule:: ltp_pipeline.errors\n   :members:\n   :show-inheritance:")


GENERATORS: dict[str, Callable[[], Iterator[str]]] = {
    "commands": command_reference,
    "settings": settings_reference,
    "report": report_reference,
    "api": api_reference,
}


# Links of results.md, whose generator writes them relative to the repository.


def setup(sphinx: Any) -> None:
    """Register the handler that fills pages, and the language of the layer rule's block."""
    sphinx.add_lexer("layers", TextLexer)
    sphinx.connect("source-read", fill_placeholders)


def fill_placeholders(_sphinx: Any, _page: str, source: list[str]) -> None:
    """Replace each placeholder of a page by generated Markdown."""
    source[0] = PLACEHOLDER.sub(lambda match: "".join(GENERATORS[match[1]]()), source[0])


def _table_head(*columns: str) -> str:
    """Return the first two lines of a Markdown table."""
    return f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"


def _directive(text: str) -> str:
    """Return a reStructuredText directive as a MyST block."""
    return f"```{{eval-rst}}\n{text}\n```\n\n"


def _value_name(parameter: Any, context: Context) -> str:
    """Return the name that stands for the value of an argument or option."""
    name = str(parameter.metavar or parameter.display_type(context)).strip("<>")
    return name.removeprefix("list[").removesuffix("]") if name.startswith("list[") else name


def _as_text(text: str | None) -> str:
    """Return a help text or docstring as a Markdown paragraph."""
    return inspect.cleandoc(text or "").replace("*", r"\*").replace("<", "&lt;")


def _cell(text: str | None) -> str:
    """Return a text as one cell of a Markdown table."""
    return (
        " ".join((text or "").split()).replace("|", r"\|").replace("*", r"\*").replace("<", "&lt;")
    )


def _type_name(value: dict[str, Any], anchors: dict[str, str]) -> str:
    """Return the type of a JSON Schema property; objects link to their own table."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{anchors[name]})" if name in anchors else f"`{name}`"
    if "anyOf" in value or "oneOf" in value:
        parts = [
            _type_name(part, anchors) + _limits(part)
            for part in value.get("anyOf") or value["oneOf"]
        ]
        return " or ".join(dict.fromkeys(parts))
    if "enum" in value or "const" in value:
        return ", ".join(f"`{word}`" for word in value.get("enum", [value.get("const")]))
    if value.get("type") == "array":
        items = value.get("items") or next(iter(value.get("prefixItems", [])), {})
        return f"list of {_plural(_type_name(items, anchors))}"
    if value.get("type") == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"map of {_plural(_type_name(value['additionalProperties'], anchors))}"
    return str(value.get("type", "any"))


def _plural(name: str) -> str:
    """Return the name of a type for several values, for example `numbers, ≥ 0`."""
    return re.sub(r"^(number|integer|string|object|list|map)\b", r"\1s", name)


def _limits(value: dict[str, Any]) -> str:
    """Return the limits of a number as text, for example `, ≥ 0, < 1`.

    Limits of the data type, which nobody reaches, are left out.
    """
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = ""
    for key, sign in signs.items():
        is_implied = f"exclusive{key[0].upper()}{key[1:]}" in value
        if key in value and not is_implied and abs(value[key]) < LARGEST_SHOWN_LIMIT:
            limits += f", {sign} {value[key]:,.12g}"
    return limits
