"""Read and write report.json."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.complete import complete
from ltp_pipeline.results.consistency import MAX_SHOWN, ContradictionError, check_same_values
from ltp_pipeline.results.schema import SCHEMA, Report
from ltp_pipeline.settings.file_names import EXACT, FAST
from ltp_pipeline.system.files import AnyPath, read_text, write_json
from ltp_pipeline.system.json import parse_json
from ltp_pipeline.system.text import quote_name

MAX_BYTES = 16 << 20
HINT = "pass the report.json that `ltp-pipeline run` wrote"


def read(path: AnyPath) -> Report:
    """Read a report.json.

    Keys may be missing. A key that is there has the right type, and the value that `complete`
    computes.

    Raises:
        InputError: The file is not a report of this version, or contradicts itself.
    """
    text = read_text(path, HINT, MAX_BYTES)
    content = parse_json(text, str(path), HINT)
    schema = content.get("schema") if isinstance(content, dict) else None
    if not isinstance(schema, str) or not schema.startswith("ltp-report/"):
        raise InputError(f"{path} is JSON, but not a report of ltp-pipeline", HINT)
    if schema != SCHEMA:
        raise InputError(
            f"{path} has schema {schema}; this version reads {SCHEMA}",
            "install a newer ltp-pipeline, or write the report again with this one: "
            "`ltp-pipeline report RUN`",
        )
    try:
        report = Report.model_validate_json(text)
    except ValidationError as error:
        problem = _format_problem(error)
        raise InputError(f"{path} does not follow {SCHEMA}: {problem}", HINT) from None
    check_consistency(report, str(path))
    return report


def check_consistency(report: Report, where: str) -> None:
    """Raise ContradictionError if a value of the report is not the one that `complete` computes.

    Args:
        report: The report; values that are null are not compared.
        where: Name of the report in the message.
    """
    try:
        computed = complete(report)
    except ContradictionError as error:
        raise ContradictionError(error.key, error.stated, error.computed, where) from None
    check_same_values(report, computed, where)
    _check_requested_files(report, where)


def _check_requested_files(report: Report, where: str) -> None:
    """Raise ContradictionError if an exact file that was requested is missing.

    Files on sparse operators may be missing: they are written only if they are faster.
    """
    exact = [file.name for file in report.pruned.files if file.weight_storage == EXACT]
    requested = report.settings.get("export", {}).get("formats")
    for name in map(str, requested if isinstance(requested, list) else ()):
        if name not in exact and name.partition("-")[0] != FAST:
            raise ContradictionError("settings.export.formats", name, exact, where, "pruned.files")


def write(report: Report, path: Path) -> None:
    """Write a report in one move."""
    write_json(path, to_json(report))


def to_json(report: Report) -> dict[str, Any]:
    """Return the content of a report as JSON values."""
    return report.model_dump(mode="json", by_alias=True)


def _format_problem(error: ValidationError) -> str:
    """Return the first problem with its key, and the number of the others."""
    problems = error.errors(include_url=False, include_input=False)
    key = ".".join(map(str, problems[0]["loc"]))
    message = problems[0]["msg"].removeprefix("Value error, ")
    first = f"{quote_name(key, MAX_SHOWN)[1:-1]}: {message}" if key else message
    return f"{first} (and {len(problems) - 1} more)" if len(problems) > 1 else first
