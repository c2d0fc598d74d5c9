"""Reading and writing report.json."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ltp_pipeline.errors import InputError
from ltp_pipeline.files import AnyPath, read_text, write_json
from ltp_pipeline.report_schema import SCHEMA, Report
from ltp_pipeline.strict_json import parse_json

REMEDY = "give the report.json of a finished run; `ltp-pipeline run` writes one"


def read(path: AnyPath) -> Report:
    """Read a report.json; keys may be missing (their gates fail), but what is there has the right type."""
    text = read_text(path, REMEDY)
    content = parse_json(text, str(path), REMEDY)
    schema = content.get("schema") if isinstance(content, dict) else None
    if not isinstance(schema, str) or not schema.startswith("ltp-report/"):
        raise InputError(f"{path} is JSON, but not a report of ltp-pipeline", REMEDY)
    if schema != SCHEMA:
        update = "install a newer ltp-pipeline, or write the report again with this one: `ltp-pipeline report RUN`"
        raise InputError(f"{path} has schema {schema}; this version reads {SCHEMA}", update)
    try:
        return Report.model_validate_json(text)
    except ValidationError as error:
        found = [": ".join(filter(None, (".".join(map(str, e["loc"])), e["msg"]))) for e in error.errors()]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise InputError(f"{path} does not keep to {SCHEMA}: {found[0]}{more}", REMEDY) from None


def write(report: Report, path: Path) -> None:
    """Write a report in one move."""
    write_json(path, plain(report))


def plain(report: Report) -> dict[str, Any]:
    """A report as JSON has it."""
    return report.model_dump(mode="json", by_alias=True)
