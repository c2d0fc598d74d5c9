"""Reading a report that may not be one."""

import json
from pathlib import Path

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.files import write_json
from ltp_pipeline.gates import gate_settings, judge, read_report
from tests.support.sample_report import sample


def test_reads_what_was_written(tmp_path: Path) -> None:
    report, _ = sample()
    write_json(tmp_path / "report.json", report)
    assert read_report(tmp_path / "report.json") == report


@pytest.mark.parametrize(
    ("content", "told"),
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
    ],
)
def test_refuses_what_is_no_report(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_report(path)
    assert told in caught.value.what
    assert "report.json" in caught.value.what
    assert caught.value.remedy


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_refuses_missing_files_and_folders(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_report(tmp_path / name)


def test_refuses_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_bytes(b"\xff\xd8\xff\xe0JFIF")
    with pytest.raises(InputError, match="not JSON"):
        read_report(tmp_path / "report.json")


def test_missing_keys_are_read_and_fail_their_gates(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"schema": "ltp-report/1"}', encoding="utf-8")
    report = read_report(tmp_path / "report.json")
    assert not judge(report, gate_settings({"max_drop": 0.01}))[0].passed
