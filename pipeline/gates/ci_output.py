"""Results of gates for CI systems: JUnit XML, and annotations and summaries of GitHub Actions."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ltp_pipeline.system.text import make_printable

if TYPE_CHECKING:
    from ltp_pipeline.results.schema import Report
    from ltp_pipeline.results.schema_parts import GateResult

STEP_SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


def format_junit(results: Sequence[GateResult]) -> str:
    """Return JUnit XML with one test case for each gate."""
    num_failed = sum(not result.passed for result in results)
    counts = {
        "tests": str(len(results)),
        "failures": str(num_failed),
        "errors": "0",
        "time": "0",
    }
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": "ltp-pipeline gate", "skipped": "0", **counts}
    )
    for result in results:
        attributes = {
            "classname": "ltp-pipeline.gate",
            "name": make_printable(result.name),
            "time": "0",
        }
        case = ElementTree.SubElement(suite, "testcase", attributes)
        if result.passed:
            ElementTree.SubElement(case, "system-out").text = result.line
        else:
            attributes = {"message": result.line, "type": "GateFailed"}
            failure = ElementTree.SubElement(case, "failure", attributes)
            failure.text = f"{result.line}\n{make_printable(result.advice)}".rstrip()
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def format_annotations(results: Sequence[GateResult]) -> list[str]:
    """Return a workflow command of GitHub Actions for each gate that failed."""
    lines = []
    for result in results:
        if not result.passed:
            title = _escape_message(f"gate {result.name}", special=":,")
            lines.append(f"::error title={title}::{_escape_message(result.line)}")
    return lines


def is_github_job() -> bool:
    """Return True if this process runs in a job of GitHub Actions."""
    return bool(os.environ.get(STEP_SUMMARY_VARIABLE))


def notify_github(report: Report, results: Sequence[GateResult]) -> None:
    """Write the report with these results to the page of the job, and mark failed gates there."""
    from ltp_pipeline.gates.evaluation import set_gate_results
    from ltp_pipeline.stages.report.render import render_markdown

    markdown = render_markdown(set_gate_results(report, results))
    append_step_summary(Path(os.environ[STEP_SUMMARY_VARIABLE]), markdown)
    for line in format_annotations(results):
        print(line, file=sys.stderr)


def append_step_summary(path: Path, markdown: str) -> None:
    """Append to the summary of a job of GitHub Actions."""
    # A summary that cannot be written must not fail a job whose model passed.
    with suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(markdown.rstrip("\n") + "\n\n")


def _escape_message(text: str, special: str = "") -> str:
    """Percent-encode what would end a workflow command, or with `special` a property of it."""
    for character in "%\r\n" + special:
        text = text.replace(character, f"%{ord(character):02X}")
    return text
