"""Reading and writing report.json."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.checks import MOST_SHOWN, require_consistent
from ltp_pipeline.results.schema import SCHEMA, Report
from ltp_pipeline.system.files import AnyPath, read_text, write_json
from ltp_pipeline.system.json import parse_json
from ltp_pipeline.system.text import quote_name

MOST_BYTES = 16 << 20
REMEDY = "give the report.json of a finished run; `ltp-pipeline run` writes one"


def read(path: AnyPath) -> Report:
    """Read a report.json; keys may be missing (their gates fail), but what is there has the right type and agrees."""
    text = read_text(path, REMEDY, MOST_BYTES)
    content = parse_json(text, str(path), REMEDY)
    schema = content.get("schema") if isinstance(content, dict) else None
    if not isinstance(schema, str) or not schema.startswith("ltp-report/"):
        raise InputError(f"{path} is JSON, but not a report of ltp-pipeline", REMEDY)
    if schema != SCHEMA:
        update = "install a newer ltp-pipeline, or write the report again with this one: `ltp-pipeline report RUN`"
        raise InputError(f"{path} has schema {schema}; this version reads {SCHEMA}", update)
    try:
        report = Report.model_validate_json(text)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        key, said = (
            ".".join(map(str, problems[0]["loc"])),
            problems[0]["msg"].removeprefix("Value error, "),
        )
        first = f"{quote_name(key, MOST_SHOWN)[1:-1]}: {said}" if key else said
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InputError(f"{path} does not keep to {SCHEMA}: {first}{more}", REMEDY) from None
    require_consistent(report, str(path))
    return report


def write(report: Report, path: Path) -> None:
    """Write a report in one move."""
    write_json(path, plain(report))


def plain(report: Report) -> dict[str, Any]:
    """A report as JSON has it."""
    return report.model_dump(mode="json", by_alias=True)
