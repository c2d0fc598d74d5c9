"""A few of the cases of tests/fuzz/reports.py: no edit of a report or swap of a file lets a gate pass."""

from pathlib import Path

from tests.fuzz import reports
from tests.fuzz.report_mutants import MUTANTS

CASES = len(MUTANTS)  # each of them once


def test_no_edited_report_passes_a_gate_that_it_fails(tmp_path: Path) -> None:
    reports.base(tmp_path / "base")
    found = [case for case in reports.tried(0, range(CASES), tmp_path / "base") if case.problem]
    assert not found


def test_the_same_seed_makes_the_same_case(tmp_path: Path) -> None:
    made = []
    for name in ("first", "second"):
        reports.base(tmp_path / name)
        case = reports.make(5, 0, tmp_path / name)
        made.append((case, (tmp_path / name / "report.json").read_bytes()))
    assert made[0] == made[1]
