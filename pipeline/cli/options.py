"""Options that several commands share, and options made from the settings schema."""

import functools
import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from ltp_pipeline.errors import UsageError
from ltp_pipeline.settings.file_names import ENCODINGS, FORMAT_HELP
from ltp_pipeline.settings.load import merge_tables, parse_toml
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.system.text import quote_name

SettingValues = dict[str, dict[str, Any]]  # values of settings by section and key


@dataclass(frozen=True)
class SettingOption:
    """The option of a setting, with type and help text from the settings schema."""

    section: str
    key: str
    name: str
    field: FieldInfo

    @property
    def parameter_name(self) -> str:
        """Name of the parameter that Typer passes to the command."""
        return f"{self.section}_{self.key}"

    @property
    def help_text(self) -> str:
        """Description of the setting, with its default value."""
        text = self.field.description or ""
        value_type, _ = _parsed_type(self.field.annotation)
        if value_type == list[str]:
            text += " Repeatable."
        default = self.field.default
        if isinstance(default, tuple):
            default = ", ".join(default)
        has_default = default is not None and default is not False and default != ""
        return f"{text} Default: {default}." if has_default else text

    def make_parameter(self) -> inspect.Parameter:
        """Return the parameter of a command from which Typer makes the option."""
        value_type, metavar = _parsed_type(self.field.annotation)
        option = typer.Option(self.name, help=self.help_text, metavar=metavar)
        return inspect.Parameter(
            self.parameter_name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[value_type | None, option],
        )


def find_option(section: str, key: str) -> SettingOption:
    """Return the option of a setting that has one."""
    (option,) = (option for option in iter_options(section) if option.key == key)
    return option


def iter_options(*sections: str) -> Iterator[SettingOption]:
    """Yield the options of all settings of these sections."""
    for section in sections:
        fields = type(Settings.model_fields[section].default).model_fields
        for key, field in fields.items():
            extra = field.json_schema_extra
            name = extra.get("option") if isinstance(extra, dict) else None
            if isinstance(name, str):
                yield SettingOption(section, key, name, field)


def with_settings(*sections: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each setting of these sections that has one.

    The options take the place of the parameter `values` of the command. It gets the values by
    section and key; an option that is not used has the value None.
    """
    options = list(iter_options(*sections))

    def add_options(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)

        @functools.wraps(command)
        def run_command(**arguments: Any) -> None:
            values: SettingValues = {section: {} for section in sections}
            for option in options:
                value = arguments.pop(option.parameter_name)
                values[option.section][option.key] = None if value == [] else value
            command(**arguments, values=values)

        parameters = []
        for parameter in signature.parameters.values():
            if parameter.name == "values":
                parameters += [option.make_parameter() for option in options]
            else:
                parameters.append(parameter)
        # Typer reads the signature to make the options.
        run_command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run_command

    return add_options


def merge_baseline_mode(mode: str | None, no_baseline: bool) -> str | None:
    """Return the mode of the baseline that --baseline and --no-baseline request together."""
    if no_baseline and mode not in (None, "none"):
        raise UsageError(
            f"--baseline {mode} and --no-baseline contradict each other", "pass one of them"
        )
    return "none" if no_baseline else mode


def add_assignments(values: SettingValues, assignments: Sequence[str] | None) -> None:
    """Update values in place by those of --set."""
    for text in assignments or ():
        merge_tables(values, parse_assignment(text))


def parse_assignment(text: str) -> dict[str, Any]:
    """Parse `SECTION.KEY=VALUE`, where the value is TOML, or else text without quotes.

    Raises:
        UsageError: The text does not have this form.
    """
    name, _, value = text.partition("=")
    for toml_value in (value, json.dumps(value.strip())):
        try:
            values = parse_toml(f"{name} = {toml_value}")
        except ValueError:
            continue
        if len(values) == 1 and all(isinstance(section, dict) for section in values.values()):
            return values
    raise UsageError(
        f"--set must have the form SECTION.KEY=VALUE, got {quote_name(text)}",
        "write for example --set method.t0=0.01; names with dots or colons need quotes, as in"
        """ --set 'data.inputs."a:0".scale=0.5'""",
    )


def _parsed_type(annotation: Any) -> tuple[Any, str | None]:
    """Return the type that Typer parses for a setting, and the placeholder in the help text.

    Pydantic checks the limits of the value afterwards.
    """
    origin = get_origin(annotation)
    members = [member for member in get_args(annotation) if member is not NoneType]
    if origin is Annotated:
        return _parsed_type(members[0])
    if origin in (Union, UnionType):
        if any(get_origin(member) is dict for member in members):
            return list[str], "[NAME=]LIMIT"
        return _parsed_type(members[0])
    if origin is Literal:
        return str, "|".join(members)
    if origin is tuple:
        return list[str], "NAME"
    return annotation, None


def _check_encoding(name: str) -> str:
    if name not in ENCODINGS:
        raise UsageError(
            f"there is no encoding {quote_name(name)}", f"choose among {', '.join(ENCODINGS)}"
        )
    return name


JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON on standard output.")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only the result and errors, no progress.")
]
SilentOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only notes and errors, not the result.")
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The ONNX model.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run.")]
ReportArgument = Annotated[
    Path, typer.Argument(metavar="REPORT.json", help="The report.json of a run.")
]
DataOption = Annotated[
    Path | None, typer.Option("--data", help=find_option("data", "path").help_text)
]
TaskOption = Annotated[
    Path | None,
    typer.Option(
        "--task",
        metavar="FILE.py",
        help="Read the data set, the loss or the metric from this Python file.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(help="Read settings from this file. Default: ltp.toml next to the model."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Set any key of ltp.toml. Repeatable."),
]
RunDirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Write the run to this directory. Default: MODEL-ltp in the working directory.",
    ),
]
FormatsOption = Annotated[
    list[str] | None,
    typer.Option("--format", help=f"Also write this file: {FORMAT_HELP}. Repeatable."),
]
ExportOption = Annotated[
    list[str] | None, typer.Option("--export", help=find_option("export", "formats").help_text)
]
EncodingOption = Annotated[
    str,
    typer.Option(
        metavar="|".join(ENCODINGS), callback=_check_encoding, help="Write in this encoding."
    ),
]
WeightStorageOption = Annotated[
    list[str] | None,
    typer.Option("--weight-storage", help=find_option("export", "weight_storage").help_text),
]
BaselineOption = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="auto|curve|quick|gradual|none",
        help=find_option("baseline", "mode").help_text,
    ),
]
BestOption = Annotated[
    bool | None, typer.Option("--best", help=find_option("export", "best").help_text)
]
NoBaselineOption = Annotated[
    bool, typer.Option("--no-baseline", help="Do not measure the baseline, as --baseline none.")
]
