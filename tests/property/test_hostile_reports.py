"""Some cases of the fuzzer of reports: no edit lets a failing gate pass."""

from pathlib import Path

from tests.fuzz import reports
from tests.fuzz.report_mutants import MUTANTS

NUM_CASES = len(MUTANTS)  # each mutant once


def test_edited_report_never_passes_a_failing_gate(tmp_path: Path) -> None:
    reports.make_run(tmp_path / "base")
    failures = [
        case for case in reports.try_cases(0, range(NUM_CASES), tmp_path / "base") if case.problem
    ]
    assert not failures


def test_same_seed_makes_the_same_case(tmp_path: Path) -> None:
    cases = []
    for name in ("first", "second"):
        reports.make_run(tmp_path / name)
        case = reports.make_case(5, 0, tmp_path / name)
        cases.append((case, (tmp_path / name / "report.json").read_bytes()))
    assert cases[0] == cases[1]
