"""Verdicts for CI: JUnit, annotations, the summary of a job."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ltp_pipeline.gates.ci_output import append_step_summary, format_annotations, junit
from ltp_pipeline.gates.evaluation import make_gate_settings
from ltp_pipeline.results.schema_parts import GateResult
from tests.support.sample_report import in_celsius, judge


def test_junit_has_one_case_per_gate(report: dict[str, Any]) -> None:
    verdicts = [
        *judge(report, make_gate_settings({"max_drop": 0.001, "min_sparsity": 0.5})),
        GateResult("a\x00<b", 1, 2, False),
    ]
    root = ElementTree.fromstring(junit(verdicts))  # noqa: S314 - our own text
    suite = root.find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")
    cases = suite.findall("testcase")
    assert [c.get("name") for c in cases] == ["max_drop", "min_sparsity", "a?<b"]
    failures = [c.find("failure") for c in cases]
    assert [f is None for f in failures] == [False, True, False]
    assert failures[0] is not None
    assert failures[0].get("message") == verdicts[0].line


def test_github_annotations_are_escaped() -> None:
    lines = format_annotations(
        [GateResult("a:b,c", 1.0, 2.0, False, "50 %, a\nline"), GateResult("fine", 1.0, 2.0, True)]
    )
    assert lines == ["::error title=gate a%3Ab%2Cc::a:b,c: limit 1, value 2 (50 %25, a?line)"]


def test_step_summary_is_appended(tmp_path: Path) -> None:
    target = tmp_path / "summary.md"
    target.write_text("before\n", encoding="utf-8")
    assert append_step_summary("## Report\n", {"GITHUB_STEP_SUMMARY": str(target)})
    assert target.read_text(encoding="utf-8") == "before\n## Report\n\n"
    assert not append_step_summary("## Report\n", {})
    assert not append_step_summary("## Report\n", {"GITHUB_STEP_SUMMARY": str(tmp_path)})


def test_junit_has_name_unit_and_direction_of_the_metric() -> None:
    text = junit(judge(in_celsius(), make_gate_settings({"max_drop": 0.001})))
    assert 'message="max_drop: limit 0.001, value 0.0045 (MAE in °C, lower is better;' in text
