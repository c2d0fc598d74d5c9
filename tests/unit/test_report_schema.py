"""The shipped JSON Schema is the one the models generate, and reports keep to it."""

from importlib import resources
from typing import Any

import pytest

from ltp_pipeline.report_schema import check, json_schema, problems
from tests.support.sample_report import sample


def test_shipped_schema_is_generated() -> None:
    shipped = resources.files("ltp_pipeline").joinpath("report.schema.json").read_text(encoding="utf-8")
    assert shipped == json_schema(), "run: python -m ltp_pipeline.report_schema > pipeline/report.schema.json"


@pytest.mark.parametrize("baseline", [True, False])
def test_sample_keeps_to_it(baseline: bool) -> None:
    check(sample(baseline)[0])


def test_more_keys_are_welcome() -> None:
    report: dict[str, Any] = sample()[0] | {"later": 1}
    assert problems(report) == []


def test_what_is_missing_or_wrong_is_named() -> None:
    report = sample()[0]
    del report["pruned"]["drop"]
    report["verdict"] = "perhaps"
    assert [line.split(":")[0] for line in problems(report)] == ["verdict", "pruned.drop"]
    assert [line.split(":")[0] for line in problems(report, missing=False)] == ["verdict"]
    with pytest.raises(ValueError, match=r"pruned\.drop"):
        check(report)


def test_not_a_number_is_no_value() -> None:
    report = sample()[0]
    report["pruned"]["drop"] = float("nan")
    assert problems(report)
