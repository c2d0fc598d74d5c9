"""What CI systems read: JUnit XML, GitHub's annotations and its step summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ltp_pipeline.system.text import make_printable

if TYPE_CHECKING:
    from ltp_pipeline.results.schema_parts import GateResult


def junit(verdicts: Sequence[GateResult]) -> str:
    """JUnit XML: one test case per gate."""
    failed = sum(not v.passed for v in verdicts)
    count = {"tests": str(len(verdicts)), "failures": str(failed), "errors": "0", "time": "0"}
    root = ElementTree.Element("testsuites", count)
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": "ltp-pipeline gate", "skipped": "0", **count}
    )
    for verdict in verdicts:
        named = {
            "classname": "ltp-pipeline.gate",
            "name": make_printable(verdict.name),
            "time": "0",
        }
        case = ElementTree.SubElement(suite, "testcase", named)
        line = verdict.line
        if verdict.passed:
            ElementTree.SubElement(case, "system-out").text = line
        else:
            failure = ElementTree.SubElement(
                case, "failure", {"message": line, "type": "GateFailed"}
            )
            failure.text = f"{line}\n{make_printable(verdict.advice)}".rstrip()
    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def github_lines(verdicts: Sequence[GateResult]) -> list[str]:
    """GitHub workflow commands: every failing gate becomes an annotation."""
    return [
        f"::error title={_github(f'gate {v.name}', ':,')}::{_github(v.line)}"
        for v in verdicts
        if not v.passed
    ]


def append_step_summary(markdown: str, environment: Mapping[str, str]) -> bool:
    """Append to the summary of a GitHub job; False when this is none."""
    path = environment.get("GITHUB_STEP_SUMMARY")
    if not path:
        return False
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(markdown.rstrip("\n") + "\n\n")
    except OSError:
        return False  # a missing summary must not fail a job whose model is fine
    return True


def _github(text: str, also: str = "") -> str:
    for char in "%\r\n" + also:
        text = text.replace(char, f"%{ord(char):02X}")
    return text
