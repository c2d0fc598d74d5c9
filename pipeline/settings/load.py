"""Load settings from their sources: defaults < preset < ltp.toml < options. Later ones win."""

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.checks import check_lambda
from ltp_pipeline.settings.schema import ExportSettings, Settings
from ltp_pipeline.system.files import AnyPath, read_text
from ltp_pipeline.system.text import quote_name

SETTINGS_FILE = "ltp.toml"
MAX_FILE_BYTES = 1 << 20  # size of a file of settings
MAX_DOTS = 200  # dots in a line: the time to parse a dotted key grows with their square
MAX_DEPTH = 32  # tables and arrays inside each other
INTEGER_BOUND = 2**63  # TOML's integers have 64 bits


def load_settings(
    model: AnyPath | None,
    config: AnyPath | None = None,
    preset: str | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Settings:
    """Load and check the settings of a command.

    Args:
        model: The model; an ltp.toml beside it is read unless `config` is passed.
        config: File of settings.
        preset: Name of a preset in pipeline/presets.
        options: Values by section and key; None sets nothing.

    Returns:
        The settings. Those that no source sets have their defaults.

    Raises:
        InputError: A file is missing or not TOML, or a setting is unknown, invalid or contradicts
            another one.
    """
    values: dict[str, dict[str, Any]] = {}
    if preset is not None:
        _merge_source(values, _read_preset(preset))
    if config is None and model is not None:
        file_beside_model = Path(model).parent / SETTINGS_FILE
        if file_beside_model.is_file():
            config = file_beside_model
    if config is not None:
        _merge_source(values, read_settings_file(Path(config)))
    _merge_source(values, options or {})
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise convert_validation_error(error) from None
    check_lambda(settings)
    return settings


def read_settings_file(path: Path) -> dict[str, Any]:
    """Read a file of settings without checking them. A relative path of the data starts at it."""
    text = read_text(path, "check the path of --config", MAX_FILE_BYTES)
    try:
        values = parse_toml(text)
    except ValueError as error:
        raise InputError(
            f"{path} is not valid TOML: {error}",
            "correct that line; names with signs other than letters, digits, - and _ need quotes,"
            ' as in [data.inputs."input:0"]',
        ) from None
    data = values.get("data")
    if isinstance(data, dict) and isinstance(data.get("path"), str):
        data["path"] = str(path.parent / data["path"])
    return values


def update_export(settings: ExportSettings, **changes: Any) -> ExportSettings:
    """Return export settings with some of them changed, after the checks of `load_settings`."""
    values = {**settings.model_dump(), **changes}
    return load_settings(None, options={"export": values}).export


def merge_tables(target: dict[str, Any], source: Mapping[str, Any]) -> None:
    """Update a table in place by another one, recursively. A value of None changes nothing."""
    for key, value in source.items():
        if isinstance(value, Mapping) and isinstance(target.get(key), dict):
            merge_tables(target[key], value)
        elif value is not None:
            target[key] = dict(value) if isinstance(value, Mapping) else value


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML that may come from anywhere.

    Raises:
        ValueError: The text is not TOML, has a number that no setting can hold, or is built to
            cost time or memory.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MAX_DOTS:
            raise ValueError(f"line {number} has over {MAX_DOTS} dots; write it in several lines")
    try:
        values = tomllib.loads(text)
        _check_values(values, depth=0)
    except RecursionError:
        raise ValueError("tables or arrays are nested too deep") from None
    return values


def convert_validation_error(error: ValidationError, section: str = "") -> InputError:
    """Return an InputError with every key that is wrong.

    Args:
        error: The error of pydantic.
        section: The section that was validated; empty if all settings were.
    """
    problems = []
    hint = "correct the setting in ltp.toml or on the command line"
    details = error.errors()
    for detail in details:
        location = detail["loc"]
        key = ".".join(map(str, (section, *location) if section else location))
        is_told_by_items = any(other["loc"][:-1] == location for other in details)
        if detail["type"] == "too_short" and is_told_by_items:
            continue
        if detail["type"] == "extra_forbidden":
            problems.append(f"unknown setting {key}")
            hint = _list_keys(section or (str(location[0]) if len(location) > 1 else ""))
        else:
            message = detail["msg"].removeprefix("Value error, ")
            problems.append(f"setting {key}: {message}" if key else message)
    return InputError("; ".join(problems), hint)


def _check_values(value: Any, depth: int) -> None:
    if isinstance(value, int) and not -INTEGER_BOUND <= value < INTEGER_BOUND:
        raise ValueError(f"an integer has more than 64 bits: {quote_name(hex(value))}")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        if depth == MAX_DEPTH:
            raise RecursionError
        for item in value:
            _check_values(item, depth + 1)


def _read_preset(name: str) -> dict[str, Any]:
    folder = resources.files("ltp_pipeline.presets")
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".toml"))
    if f"{name}.toml" not in files:
        presets = ", ".join(files).replace(".toml", "")
        raise InputError(f"there is no preset {quote_name(name)}", f"presets: {presets}")
    return parse_toml((folder / f"{name}.toml").read_text(encoding="utf-8"))


def _merge_source(values: dict[str, dict[str, Any]], source: Mapping[str, Any]) -> None:
    """Update the values of earlier sources in place by those of a later one."""
    for name, section in source.items():
        if not isinstance(section, Mapping):
            raise InputError(
                f"setting {name!r} is outside a section",
                "move it below the header of its section, such as [data] or [train]",
            )
    if _sets_outcome(source):
        values.pop("budget", None)
        values.get("method", {}).pop("lambda", None)
    for name, section in source.items():
        merge_tables(values.setdefault(name, {}), section)


def _sets_outcome(source: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return True if a source sets a budget or λ, which replace those of earlier sources."""
    budget = source.get("budget", {})
    is_budget_set = any(value is not None for value in budget.values())
    return is_budget_set or source.get("method", {}).get("lambda") is not None


def _list_keys(section: str) -> str:
    """Return a hint with the keys of a section, or with all sections."""
    kind = "keys" if section else "sections"
    fields = type(Settings.model_fields[section].default) if section else Settings
    names = [field.alias or name for name, field in fields.model_fields.items()]
    return f"known {kind}: {', '.join(names)}"
