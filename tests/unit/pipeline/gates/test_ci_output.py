"""Results of gates for CI systems: JUnit, annotations, the summary of a job."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ltp_pipeline.gates.ci_output import append_step_summary, format_annotations, format_junit
from ltp_pipeline.gates.evaluation import make_gate_settings
from ltp_pipeline.results.schema_parts import GateResult
from tests.support.sample_report import evaluate_report, in_celsius


def test_junit_has_a_case_for_each_gate(report: dict[str, Any]) -> None:
    results = [
        *evaluate_report(report, make_gate_settings({"max_drop": 0.001, "min_sparsity": 0.5})),
        GateResult("a\x00<b", 1, 2, False),
    ]
    root = ElementTree.fromstring(format_junit(results))  # noqa: S314 - our own text
    suite = root.find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == ["max_drop", "min_sparsity", "a?<b"]
    failures = [case.find("failure") for case in cases]
    assert [failure is None for failure in failures] == [False, True, False]
    assert failures[0] is not None
    assert failures[0].get("message") == results[0].line
    assert (failures[0].text or "").splitlines() == [results[0].line, results[0].advice]


def test_junit_names_the_unit_and_direction_of_the_metric() -> None:
    text = format_junit(evaluate_report(in_celsius(), make_gate_settings({"max_drop": 0.001})))
    assert "MAE in °C, lower is better" in text


def test_annotations_are_escaped() -> None:
    results = [
        GateResult("a:b,c", 1.0, 2.0, False, "50 %, a\nline"),
        GateResult("fine", 1.0, 2.0, True),
    ]
    (line,) = format_annotations(results)
    title, message = line.split("::")[1:]
    assert title == "error title=gate a%3Ab%2Cc"
    assert "50 %25" in message
    assert "\n" not in message


def test_step_summary_is_appended_and_never_fails(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n", encoding="utf-8")
    append_step_summary(path, "## Report\n")
    assert path.read_text(encoding="utf-8") == "before\n## Report\n\n"
    append_step_summary(tmp_path, "## Report\n")
