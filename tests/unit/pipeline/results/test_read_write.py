"""Reading a report that may not be one."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.gates.evaluation import evaluate_gates, make_gate_settings
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.read_write import read, to_json, write
from ltp_pipeline.system.files import write_json
from tests.support.sample_report import report_of, sample


def test_read_returns_the_written_report(tmp_path: Path) -> None:
    content, _ = sample()
    write_json(tmp_path / "report.json", content | {"later": {"key": 1}})
    report = read(tmp_path / "report.json")
    assert report == report_of(content | {"later": {"key": 1}})
    write(report, tmp_path / "again.json")
    again = json.loads((tmp_path / "again.json").read_text(encoding="utf-8"))
    assert again == to_json(report)
    assert again["later"] == {"key": 1}
    assert again["pruned"]["files"][1]["latency"] == content["pruned"]["files"][1]["latency"]
    assert read(tmp_path / "again.json") == report


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "cut off"),
        (json.dumps(sample()[0])[:500], "cut off"),
        ("[" * 100_000, "cut off"),
        ("[1, 2]", "not a report"),
        ('{"name": "package", "version": "1.0"}', "not a report"),
        ('{"schema": 1}', "not a report"),
        ('{"schema": "ltp-report/2"}', "ltp-report/2"),
        ('{"schema": "ltp-report/1", "pruned": {"drop": NaN}}', "NaN"),
        ('{"schema": "ltp-report/1", "pruned": []}', "pruned"),
        ('{"schema": "ltp-report/1", "pruned": {"drop": "0.01"}}', "pruned.drop"),
        ('{"schema": "ltp-report/1", "pruned": {"sparsity": 88}}', "pruned.sparsity"),
        (
            '{"schema": "ltp-report/1", "pruned": {"accuracy": {"value": 88}}}',
            "accuracy.value must",
        ),
        (
            '{"schema": "ltp-report/1", "pruned": {"files": [{"accuracy": {"value": 88}}]}}',
            "accuracy.value must",
        ),
        ('{"schema": "ltp-report/1", "pruned": {"drop": 1.5}}', "drop must"),
        (
            '{"schema": "ltp-report/1", "baseline": {"curve": [{"accuracy": 88}]}}',
            "baseline.curve.0.accuracy must",
        ),
        ('{"schema": "ltp-report/1", "pruned": null}', "pruned"),
        ('{"schema": "ltp-report/1", "pruned": {"files": null}}', "pruned.files"),
        ('{"schema": "ltp-report/1", "metric": "top-1"}', "metric"),
        ('{"schema": "ltp-report/1", "settings": {"gates": 1}}', "settings.gates"),
        ('{"schema": "ltp-report/1", "gates": [{"passed": 1}]}', "gates.0.passed"),
        ('{"schema": "ltp-report/1", "layers": [{"nonzeros": true}]}', "layers.0.nonzeros"),
    ],
)
def test_read_other_content_is_rejected(tmp_path: Path, content: str, part: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read(path)
    assert part in caught.value.message
    assert "report.json" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_read_missing_file_or_folder_is_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=re.escape(str(tmp_path / name))):
        read(tmp_path / name)


def test_read_bytes_that_are_not_utf8_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_bytes(b"\xff\xd8\xff\xe0JFIF")
    with pytest.raises(InputError, match="UTF-8"):
        read(tmp_path / "report.json")


def test_read_missing_keys_fail_their_gates(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"schema": "ltp-report/1"}', encoding="utf-8")
    report = read(tmp_path / "report.json")
    assert not evaluate_gates(report, make_gate_settings({"max_drop": 0.01}))[0].passed


def test_read_metric_with_unit_may_have_any_value(tmp_path: Path) -> None:
    content = {
        "schema": "ltp-report/1",
        "metric": {"name": "mse", "is_fraction": False},
        "custom_task": {"name": "task.py"},
    }
    write_json(
        tmp_path / "report.json", content | {"pruned": {"accuracy": {"value": 88}, "drop": 7.5}}
    )
    assert read(tmp_path / "report.json").pruned.value == 88


def written(tmp_path: Path, **content: Any) -> Path:
    write_json(tmp_path / "report.json", {"schema": "ltp-report/1", **content})
    return tmp_path / "report.json"


def test_read_r2_may_be_negative(tmp_path: Path) -> None:
    parts = {
        "original": {"accuracy": {"value": 0.9}},
        "pruned": {"accuracy": {"value": -1.5}, "drop": 2.4},
    }
    assert read(written(tmp_path, metric={"name": "R²"}, **parts)).pruned.value == -1.5
    with pytest.raises(InputError, match=r"accuracy\.value .* -1\.5\b"):
        read(written(tmp_path, **parts))
    parts["pruned"]["drop"] = 2.6
    with pytest.raises(InputError, match=r"\bdrop .* 2\.6\b"):
        read(written(tmp_path, metric={"name": "R²"}, **parts))


def test_read_fraction_above_one_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"accuracy\.value .* 88\b"):
        read(written(tmp_path, metric={"name": "R²"}, pruned={"accuracy": {"value": 88}}))


def test_read_baseline_budget_is_in_the_unit_of_the_metric(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"baseline\.budget .* 5\b"):
        read(written(tmp_path, baseline={"budget": 5}))
    own = {"metric": {"name": "error", "is_fraction": False}, "custom_task": {"name": "task.py"}}
    assert read(written(tmp_path, **own, baseline={"budget": 5})).baseline is not None


@pytest.mark.parametrize(
    "wrong", [{"is_fraction": 1}, {"name": 5}, {"unit": 5}, {"higher_is_better": "yes"}]
)
def test_read_metric_of_wrong_type_is_rejected(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"metric\.{next(iter(wrong))}\b"):
        read(written(tmp_path, metric=wrong))


def test_read_extra_metrics_are_strict_and_preserved(tmp_path: Path) -> None:
    figure = {
        "name": "error",
        "value": 1.5,
        "unit": "mm",
        "higher_is_better": False,
        "is_fraction": False,
    }
    report = read(written(tmp_path, pruned={"accuracy": {"value": 0.9, "extra_metrics": [figure]}}))
    assert to_json(report)["pruned"]["accuracy"]["extra_metrics"] == [figure]
    with pytest.raises(InputError, match=r"extra_metrics\.0\.value"):
        read(
            written(
                tmp_path,
                pruned={"accuracy": {"value": 0.9, "extra_metrics": [figure | {"value": "1.5"}]}},
            )
        )


def test_read_unknown_metric_keys_do_not_replace_methods(tmp_path: Path) -> None:
    figure = {"name": "error", "value": 1.5, "text": "x", "metric": 1}
    hostile = dict.fromkeys(vars(Metric).keys() - Metric.__dataclass_fields__.keys(), 1)
    content = {"metric": hostile, "original": {"accuracy": {"value": 0.9}}}
    report = read(
        written(
            tmp_path,
            **content,
            pruned={"accuracy": {"value": 0.8, "extra_metrics": [figure]}, "drop": 0.1},
        )
    )
    assert evaluate_gates(report, make_gate_settings({"max_drop": 0.2, "min_accuracy": 0.7}))[
        0
    ].passed
    assert report.metric.format_value(0.5) == "50.00 %"
    assert report.pruned.accuracy is not None
    assert report.pruned.accuracy.extra_metrics[0].text == "150.00 %"
