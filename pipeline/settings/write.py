"""The ltp.toml of a handoff: what `validate` needs to know to repeat the measurement, from the report alone."""

import json
from collections.abc import Mapping
from typing import Any

from ltp_pipeline.settings.schema import InputSettings, Section, TaskSettings


def render(settings: Mapping[str, Mapping[str, Any]], data_option: str) -> str:
    """The ltp.toml with which `ltp-pipeline validate` repeats the measurement."""
    data, train = (settings.get(section, {}) for section in ("data", "train"))
    lines = [
        f"# How samples become the model's input; give the data themselves by {data_option}.",
        "[data]",
    ]
    for key in ("scale", "mean", "std", "layout", "resize", "crop", "validation_share"):
        if data.get(key) not in (None, []):
            lines.append(f"{key} = {_toml(data[key])}")
    if data.get("pad"):
        lines.append(f"pad = {_toml(data['pad'])}")
    if data.get("classes"):
        table = ", ".join(f"{_toml(name)} = {n}" for name, n in data["classes"].items())
        lines.append(f"classes = {{ {table} }}")
    for name, own in data.get("inputs", {}).items():
        lines += ["", f"[data.inputs.{_toml(name)}]"]
        lines += _said(own, InputSettings)
    if task := _said(settings.get("task", {}), TaskSettings, unless_default=True):
        lines += ["", "[task]", *task]
    lines += ["", "[train]", f"seed = {train.get('seed') or 0}"]
    if train.get("imitate"):
        lines.append(f"imitate = {_toml(train['imitate'])}")
    return "\n".join(lines) + "\n"


def _said(
    values: Mapping[str, Any], section: type[Section], unless_default: bool = False
) -> list[str]:
    """The lines of a section that say something."""
    known = {key: values[key] for key in section.model_fields if values.get(key) is not None}
    return [
        f"{key} = {_toml(value)}"
        for key, value in known.items()
        if not unless_default or value != section.model_fields[key].default
    ]


def _toml(value: Any) -> str:
    """A value or a quoted key; JSON's strings are TOML's, but for one character that TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
