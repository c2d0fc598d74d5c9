"""Types of single settings, and the errors for values that do not fit them."""

import os
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from ltp_pipeline.settings.file_names import EXACT, find_format
from ltp_pipeline.settings.write import format_section_name


def setting(
    default: Any, description: str, *, option: str | None = None, **field_options: Any
) -> Any:
    """Return the field of a setting, with all that is known of it.

    Args:
        default: Default value. None means that no value is set, or that a rule chooses it.
        description: What the setting does, as a sentence that starts with a verb and names the
            unit. It is the help text of the option and the text of the documentation.
        option: Option of the command line that sets it; None if only `--set` does.
        field_options: Limits and alias, as `pydantic.Field` takes them.
    """
    return Field(
        default, description=description, json_schema_extra={"option": option}, **field_options
    )


def reject_bool(value: Any) -> Any:
    """Raise ValueError for true and false, which Python counts as numbers."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


def _reject_percent(value: Any) -> Any:
    if isinstance(reject_bool(value), int | float) and abs(value) > 1:
        raise ValueError(
            f"must be a fraction, got {value:g}; write {value / 100:g} for {value:g} %"
        )
    return value


def check_path(value: Any) -> Any:
    """Return a path as text, or raise ValueError if a system or a report could not hold it."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        return path
    if "\0" in path:
        raise ValueError("a path must not contain a zero byte")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError("the name must be UTF-8, as reports are; rename the file") from None
    return path


def to_tuple(value: Any) -> Any:
    """Return a single number as a tuple; leave anything else to the check of the type."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (value,) if is_number else value


def check_input_names(sections: Any) -> Any:
    """Raise ValueError if the section of an input contains a section.

    TOML reads `[data.inputs.a.b]` as a section `b` inside `a`. The name `a.b` needs quotes.
    """
    if isinstance(sections, Mapping):
        for name, values in sections.items():
            full_name = name + _nested_names(values)
            if full_name != name:
                header = format_section_name("data", "inputs", full_name)
                raise ValueError(f"a name with dots must be quoted: {header}")
    return sections


def _nested_names(values: Any) -> str:
    """Return the names of the first section in a section, and in that one, each after a dot."""
    if isinstance(values, Mapping):
        for key, value in values.items():
            if isinstance(value, Mapping):
                return f".{key}{_nested_names(value)}"
    return ""


def drop_exact_storage(value: Any) -> Any:
    """Return the requested kinds of weight storage without `exact`, which is always written."""
    kinds = (value,) if isinstance(value, str) else value
    if not isinstance(kinds, list | tuple):
        return value
    return tuple(kind for kind in kinds if kind != EXACT)


def parse_file_limits(value: Any) -> Any:
    """Return the limits of an option as a number, or as a mapping for `NAME=LIMIT`.

    Lists of texts come from the command line. A value from ltp.toml is returned as it is.
    """
    if not isinstance(value, list | tuple):
        return reject_bool(value)
    limits = {}
    for text in map(str, value):
        name, equal_sign, limit = text.rpartition("=")
        if len(value) == 1 and not equal_sign:
            return limit
        if not name:
            raise ValueError(
                "must be one limit for all files, or a limit for each by name, such as int8=0.5"
            )
        limits[name] = limit
    return limits


def drop_duplicates(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values in their order, each once."""
    return tuple(dict.fromkeys(values))


def _complete_format_name(value: str) -> str:
    return find_format(value).name


FormatName = Annotated[str, AfterValidator(_complete_format_name)]
UnboundedFraction = Annotated[float, BeforeValidator(_reject_percent)]
Fraction = Annotated[UnboundedFraction, Field(ge=0, le=1)]
# A value in the unit of the metric. checks.check_metric_limits checks it once the metric is known.
MetricValue = Annotated[float, BeforeValidator(reject_bool)]
PositiveFloat = Annotated[float, Field(gt=0)]
# Samples are prepared in single precision.
Float32Value = Annotated[float, Field(ge=-(2.0**127), le=2.0**127)]
# No model has more weights than the upper bound.
CompressionRatio = Annotated[float, Field(ge=1, lt=2**63)]
PositiveInt = Annotated[int, Field(ge=1, lt=2**63)]
NonNegativeInt = Annotated[int, Field(ge=0, lt=2**63)]
PixelCount = Annotated[int, Field(ge=1, le=2**16)]
ClassIndex = Annotated[int, Field(ge=0, lt=10**6)]
