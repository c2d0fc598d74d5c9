"""Types of single settings: what may stand there, and what is said where something else does."""

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from ltp_pipeline.settings.file_names import EXACT, find_format


def reject_bool(value: Any) -> Any:
    """Refuse true and false, which Python takes for numbers."""
    if isinstance(value, bool):
        raise ValueError("a number is wanted, not true or false")
    return value


def _reject_percent(value: Any) -> Any:
    if isinstance(reject_bool(value), int | float) and abs(value) > 1:
        raise ValueError(
            f"{value:g} is no fraction; if {value:g} % is meant, write {value / 100:g}"
        )
    return value


def check_path(value: Any) -> Any:
    """A path that every system and every report can hold."""
    path = (
        os.fspath(value) if isinstance(value, os.PathLike) else value
    )  # pydantic knows no other kind than Path
    if isinstance(path, str) and "\0" in path:
        raise ValueError("no path has a zero byte in it")
    if isinstance(path, str) and any(
        "\ud800" <= sign <= "\udfff" for sign in path
    ):  # as Python reads other bytes
        raise ValueError("its name is no UTF-8, and no report could hold it; rename it")
    return path


def to_tuple(value: Any) -> Any:
    """One number as several."""
    return (value,) if isinstance(value, int | float) and not isinstance(value, bool) else value


def check_input_names(value: Any) -> Any:
    """Refuse a section inside the section of an input: TOML reads it into a name with dots that is not quoted."""
    for name, own in value.items() if isinstance(value, Mapping) else ():
        whole, inner = name, own
        while isinstance(inner, Mapping):
            key, inner = next(
                ((key, part) for key, part in inner.items() if isinstance(part, Mapping)),
                ("", None),
            )
            whole = f"{whole}.{key}" if inner is not None else whole
        if whole != name:
            raise ValueError(f"a name with dots must be quoted: {input_section(whole)}")
    return value


def input_section(name: str) -> str:
    """The section of an input, by its name."""
    return f"[data.inputs.{json.dumps(name, ensure_ascii=False)}]"


def drop_exact_storage(value: Any) -> Any:
    """Kinds of rounding, without the exact one."""
    kinds = (value,) if isinstance(value, str) else value
    return tuple(k for k in kinds if k != EXACT) if isinstance(kinds, list | tuple) else value


def parse_file_limits(value: Any) -> Any:
    """Limits as the command line has them: a number, or `int8=0.5` and more of these."""
    if not isinstance(value, list | tuple):
        return reject_bool(value)
    named = [str(one).rpartition("=") for one in value]
    if len(named) == 1 and not named[0][1]:
        return named[0][2]
    if not all(name and equal for name, equal, _ in named):
        raise ValueError(
            "give one limit for all files, or a limit for each by its name, such as int8=0.5"
        )
    return {name: limit for name, _, limit in named}


def _complete_format_name(value: str) -> str:
    return find_format(value).name


def drop_duplicates(values: tuple[str, ...]) -> tuple[str, ...]:
    """Each of them once."""
    return tuple(dict.fromkeys(values))


FormatName = Annotated[str, AfterValidator(_complete_format_name)]
UnboundedFraction = Annotated[float, BeforeValidator(_reject_percent)]
Fraction = Annotated[UnboundedFraction, Field(ge=0, le=1)]
MetricValue = Annotated[
    float, BeforeValidator(reject_bool)
]  # in the metric's unit; limits.py tells more once that is known
PositiveFloat = Annotated[float, Field(gt=0)]
Float32Value = Annotated[
    float, Field(ge=-(2.0**127), le=2.0**127)
]  # samples are prepared in single precision
CompressionRatio = Annotated[float, Field(ge=1, lt=2**63)]  # no model has more weights
PositiveInt = Annotated[int, Field(ge=1, lt=2**63)]
NonNegativeInt = Annotated[int, Field(ge=0, lt=2**63)]
PixelCount = Annotated[int, Field(ge=1, le=2**16)]
ClassIndex = Annotated[int, Field(ge=0, lt=10**6)]
