"""Reading a report that may not be one, and holding it against its files."""

import json
from pathlib import Path
from typing import Any

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.files import sha256_of, write_json
from ltp_pipeline.gates import check_files, gate_settings, judge, read_report
from tests.support.cli import invoke
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


@pytest.fixture
def run(tmp_path: Path) -> tuple[dict[str, Any], Path]:
    report, _ = sample()
    for file in report["pruned"]["files"]:
        path = tmp_path / file["path"]
        path.write_text(file["format"], encoding="utf-8")
        file["sha256"] = sha256_of(path)
    return report, tmp_path


def test_files_that_belong(run: tuple[dict[str, Any], Path]) -> None:
    verdicts = check_files(*run)
    assert [v.name for v in verdicts] == ["file model.sparse.onnx", "file model.packed.onnx"]
    assert all(v.passed for v in verdicts)


def test_a_changed_file_fails(run: tuple[dict[str, Any], Path]) -> None:
    report, folder = run
    (folder / "model.packed.onnx").write_text("something else", encoding="utf-8")
    failed = [v for v in check_files(report, folder) if not v.passed]
    assert [v.name for v in failed] == ["file model.packed.onnx"]
    assert "does not belong" in failed[0].line


def test_changed_data_beside_a_file_fail(run: tuple[dict[str, Any], Path]) -> None:
    report, folder = run
    file = report["pruned"]["files"][0]
    data = folder / f"{file['path']}.data"
    data.write_bytes(b"weights")
    file["data_sha256"] = sha256_of(data)
    assert all(v.passed for v in check_files(report, folder))
    data.write_bytes(b"others!")
    assert [v.name for v in check_files(report, folder) if not v.passed] == [f"file {file['path']}.data"]


def test_a_file_without_a_hash_fails(run: tuple[dict[str, Any], Path]) -> None:
    report, folder = run
    report["pruned"]["files"][0]["sha256"] = None
    assert not check_files(report, folder)[0].passed
    assert check_files(report, folder)[0].line.endswith("the report has no hash for this file")


def test_only_changed_files_are_told_to_be_restored(run: tuple[dict[str, Any], Path], capsys: Any) -> None:
    report, folder = run
    write_json(folder / "report.json", report)
    (folder / report["pruned"]["files"][0]["path"]).write_bytes(b"changed")
    changed = invoke(capsys, "gate", folder / "report.json", "--max-drop", "0.5")
    assert (changed.code, "restore the files the report speaks of" in changed.err) == (7, True)
    both = invoke(capsys, "gate", folder / "report.json", "--min-compression", "1000")
    assert (both.code, "improve the result, or change the limit" in both.err) == (7, True)


def test_original_beside_the_report_counts(run: tuple[dict[str, Any], Path]) -> None:
    report, folder = run
    (folder / "model.onnx").write_text("another model", encoding="utf-8")
    assert not check_files(report, folder)[0].passed


def test_what_a_link_leads_to_is_hashed(run: tuple[dict[str, Any], Path], tmp_path_factory: Any) -> None:
    report, folder = run
    cached = tmp_path_factory.mktemp("cache") / "model"
    cached.write_text("another model", encoding="utf-8")
    (folder / "model.sparse.onnx").unlink()
    (folder / "model.sparse.onnx").symlink_to(cached)
    assert [v.passed for v in check_files(report, folder)] == [False, True]


def test_no_name_leads_out_of_the_working_directory(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    report, folder = run
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    for file, name in zip(report["pruned"]["files"], ("../model.sparse.onnx", "a\0b"), strict=True):
        file["path"] = name
    assert check_files(report, Path()) == []


def test_files_elsewhere_are_not_looked_at(run: tuple[dict[str, Any], Path], tmp_path_factory: Any) -> None:
    report, folder = run
    other = tmp_path_factory.mktemp("other") / "secret"
    other.write_text("x", encoding="utf-8")
    report["pruned"]["files"][0]["path"] = str(other)
    report["pruned"]["files"][1]["path"] = f"../{other.parent.name}/secret"
    assert check_files(report, folder) == []
