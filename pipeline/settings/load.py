"""Settings from their sources, of which later ones win: defaults < preset < ltp.toml < options of the command line."""

import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.schema import ExportSettings, Section, Settings, check_budget
from ltp_pipeline.settings.toml import MAX_FILE_BYTES, parse_toml
from ltp_pipeline.settings.types import input_section
from ltp_pipeline.system.files import AnyPath, read_text

LONGEST_LINE = 1000  # characters that are looked through for what is wrong in them
SETTINGS_FILE = "ltp.toml"
_SECTIONS: dict[str, type[Section]] = {
    name: type(field.default) for name, field in Settings.model_fields.items()
}


def load_settings(
    model: AnyPath | None,
    config: AnyPath | None = None,
    preset: str | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Settings:
    """Merge preset, ltp.toml (given, or beside the model) and options into one checked whole."""
    merged: dict[str, dict[str, Any]] = {}
    if preset is not None:
        _merge_source(merged, _read_preset(preset))
    beside = None if model is None else Path(model).parent / SETTINGS_FILE
    if config is None and beside is not None and beside.is_file():
        config = beside
    if config is not None:
        _merge_source(merged, read_settings_file(Path(config)))
    _merge_source(merged, options or {})
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        raise InputError(*_describe_errors(error)) from None
    check_budget(settings)
    return settings


def read_settings_file(path: Path) -> dict[str, Any]:
    """What a file of settings says, unchecked; the path of the data is relative to it."""
    return _relative_to(path.parent, _read_toml(path))


def update_export(had: ExportSettings, **changes: Any) -> ExportSettings:
    """Export settings with some changed, checked as those of ltp.toml are."""
    return load_settings(None, options={"export": {**had.model_dump(), **changes}}).export


def _merge_source(into: dict[str, dict[str, Any]], more: Mapping[str, Any]) -> None:
    if _decides_outcome(
        more
    ):  # what a weaker source says of the outcome, by a budget or by λ, is replaced
        into.pop("budget", None)
        into.get("method", {}).pop("lambda", None)
    for section, values in more.items():
        if not isinstance(values, Mapping):
            raise InputError(
                f"setting {section!r} stands outside a section",
                "put it under its section, such as [data] or [train]",
            )
        merge_tables(into.setdefault(section, {}), values)


def merge_tables(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Put what is said into a section, or into a table of one; None says nothing."""
    for key, value in more.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            merge_tables(into[key], value)
        elif value is not None:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def _decides_outcome(values: Mapping[str, Any]) -> bool:
    budget, method = (
        part if isinstance(part := values.get(name), Mapping) else {}
        for name in ("budget", "method")
    )
    return any(v is not None for v in budget.values()) or method.get("lambda") is not None


def _read_toml(path: Path) -> dict[str, Any]:
    text = read_text(path, "check the path given by --config", MAX_FILE_BYTES)
    try:
        return parse_toml(text)
    except ValueError as error:
        remedy = _unquoted(text, str(error)) or "correct the file at that line"
        raise InputError(f"{path} is not valid TOML: {error}", remedy) from None


def _unquoted(text: str, error: str) -> str | None:
    """What to do where TOML stops at a sign in the name of an input that has no quotes; None where it is not that."""
    at = re.search(r"at line (\d+)", error)
    line = text.split("\n")[int(at[1]) - 1][:LONGEST_LINE] if at else ""
    named = re.match(r"\s*\[\s*data\s*\.\s*inputs\s*\.\s*([^\"']+?)\s*\]\s*(#.*)?$", line)
    if named:
        return f"a name with such signs must be quoted: {input_section(named[1])}"
    key = re.match(r"\s*([^\s\"'=\[#]+)\s*=", line)
    if key and re.search(r"[^A-Za-z0-9_.-]", key[1]):
        return (
            f"a name with such signs must be quoted: {json.dumps(key[1], ensure_ascii=False)} = …"
        )
    return None


def _read_preset(name: str) -> dict[str, Any]:
    folder = resources.files("ltp_pipeline.presets")
    known = sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )
    if name not in known:
        raise InputError(
            f"there is no preset {name!r}", f"presets: {', '.join(known) or 'none yet'}"
        )
    return parse_toml((folder / f"{name}.toml").read_text(encoding="utf-8"))


def _relative_to(folder: Path, values: dict[str, Any]) -> dict[str, Any]:
    data = values.get("data")
    if isinstance(data, dict) and isinstance(data.get("path"), str):
        values["data"] = {**data, "path": str(folder / data["path"])}
    return values


def _describe_errors(error: ValidationError) -> tuple[str, str]:
    """What is wrong with which keys, and what could stand there."""
    parts = []
    remedy = "correct the setting in ltp.toml or on the command line"
    wrong = [item["loc"] for item in error.errors()]
    for item in error.errors():
        if item["type"] == "too_short" and any(loc[:-1] == item["loc"] for loc in wrong):
            continue  # what it has is wrong, which is said already
        key = ".".join(str(p) for p in item["loc"])
        if item["type"] == "extra_forbidden":
            parts.append(f"unknown setting {key}")
            section = _SECTIONS.get(str(item["loc"][0])) if len(item["loc"]) > 1 else None
            names = ", ".join(
                field.alias or name for name, field in (section or Settings).model_fields.items()
            )
            remedy = f"known {'keys' if section else 'sections'}: {names}"
        else:
            said = item["msg"].removeprefix("Value error, ")
            parts.append(f"setting {key}: {said}" if key else said)
    return "; ".join(parts), remedy
