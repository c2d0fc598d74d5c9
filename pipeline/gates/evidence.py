"""Hash the files of a report. They must lie beside the report, and no others of its names.

Every file is examined before it is opened, and only hashed here. recount.py reads what is in the
files, once their hashes are right.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from ltp_pipeline.errors import InputError
from ltp_pipeline.gates.evaluation import evaluate_run_gates, make_gate_settings, summarize_status
from ltp_pipeline.results import read_write
from ltp_pipeline.results.consistency import ContradictionError, is_same
from ltp_pipeline.results.schema import HashedFile, Report
from ltp_pipeline.results.schema_parts import GateResult, ModelInfo
from ltp_pipeline.run_directory.names import REPORT_JSON, SUMS
from ltp_pipeline.settings.checks import check_metric_limits
from ltp_pipeline.system.files import AnyPath
from ltp_pipeline.system.hashing import read_checksums, sha256_file, sha256_files

MISSING = "put the exported files beside the report again, or give --report-only to judge its numbers alone"
CHANGED = "restore the files the report speaks of, or write it anew: `ltp-pipeline run`"


def read_report(path: AnyPath) -> Report:
    """Read a report.json and check that its gate results follow from its own limits.

    Raises:
        InputError: The file is not a report, contradicts itself, or has a limit that is not valid.
    """
    report = read_write.read(path)
    check_gate_results(report, str(path))
    return report


def check_gate_results(report: Report, where: str) -> None:
    """Raise InputError if the gate results of a report are not those of its own limits.

    Args:
        report: The report.
        where: Name of the report in the message.
    """
    limits = make_gate_settings(report.settings.get("gates", {}), strict=True)
    check_metric_limits(report.metric, limits)
    expected = evaluate_run_gates(report, limits)
    if len(report.gates) != len(expected):
        raise ContradictionError("the number of gates", len(report.gates), len(expected), where)
    for number, (stated, computed) in enumerate(zip(report.gates, expected, strict=True)):
        first = (stated.name, stated.limit, stated.value, stated.passed)
        second = (computed.name, computed.limit, computed.value, computed.passed)
        if not is_same(first, second):
            raise ContradictionError(f"gates.{number}", first, second, where)
    status = summarize_status(expected)
    if report.status != status:
        raise ContradictionError("status", report.status, status, where)


def check_files(report: Report, path: Path) -> list[GateResult]:
    """Hash every file that a report names, and compare the list of checksums beside it.

    The exported files of the pruned network must be there. The original, the baseline, the trail
    and the list may be absent.
    """
    folder = path.parent
    shipped = list(_check_hashes(report.pruned.files))
    found = [_check_file(name, expected, folder, needed=True) for name, expected in shipped]
    if not shipped:
        found = [GateResult("files", "", None, False, "the report names no exported file", MISSING)]
    if report.model.path not in dict(shipped):  # which would be another file of that name
        found.append(_check_original(report.model, folder))
    others = [*(report.baseline.files if report.baseline else ()), *report.baseline_points.values()]
    trail = [item for entry in report.trail if entry.sha256 for item in entry.hashes.items()]
    named = dict.fromkeys(
        (*_check_hashes(others), *trail)
    )  # a file of the baseline is also the first point of its curve
    found += [_check_file(name, expected, folder, needed=False) for name, expected in named]
    found.append(_check_checksums(report, path))
    return [verdict for verdict in found if verdict is not None]


def _check_checksums(report: Report, path: Path) -> GateResult | None:
    """Return the result for SHA256SUMS.

    It must list every file to deploy, and no other hash of anything that the report names.
    """
    beside = path.with_name(SUMS)
    if not os.path.lexists(beside):
        return None
    try:
        listed = read_checksums(beside, CHANGED)
        mine = (
            {path.name: sha256_file(path)}
            if path.name in listed or path.name == REPORT_JSON
            else {}
        )
    except InputError as error:
        return _fail_file(SUMS, None, error.message)
    needed = {**dict(_check_hashes(report.pruned.files)), **mine}
    for name, expected in {**report.hashes, **mine}.items():
        if name in needed and name not in listed:
            return _fail_file(SUMS, None, f"it does not list {name}")
        if name in listed and listed[name] != expected:
            return _fail_file(
                SUMS,
                None,
                f"it has another hash for {name} than {'that file' if name in mine else 'the report'}",
            )
    return GateResult(f"file {SUMS}", "", None, True, "it agrees with the report")


def _check_hashes(files: Sequence[HashedFile]) -> Iterator[tuple[str, str | None]]:
    for file in files:
        yield from file.hashes.items()


def _check_original(model: ModelInfo, folder: Path) -> GateResult | None:
    """Return the result for the original and its external data, which have one hash together."""
    name = model.path or ""
    path = _resolve_path(folder, name)
    if path is None or _get_file_mode(path) is None:
        return None
    parts = [_resolve_path(path.parent, part) for part in (path.name, *model.data)]
    there = [part for part in parts if part is not None]
    problem = next(
        (f"{part.name} is {said}" for part in there if (said := _find_problem(part))), None
    )
    if problem or len(there) < len(parts):
        return _fail_file(name, model.sha256, problem or "its data are named outside the folder")
    return _compare_hashes(name, model.sha256, there)


def _check_file(name: str, expected: str | None, folder: Path, needed: bool) -> GateResult | None:
    path = _resolve_path(folder, name)
    if path is None:
        return (
            _fail_file(name, expected, "its name leads out of the report's folder", MISSING)
            if needed
            else None
        )
    there = _get_file_mode(path) is not None
    if not (needed or there):
        return None
    if problem := _find_problem(path):
        return _fail_file(name, expected, problem, CHANGED if there else MISSING)
    return _compare_hashes(name, expected, [path])


def _compare_hashes(name: str, expected: str | None, parts: Sequence[Path]) -> GateResult:
    try:
        found = sha256_files(parts)
    except OSError as error:
        return _fail_file(
            name, expected, f"cannot be read: {error.strerror}", "check the file's permissions"
        )
    if not expected:
        return _fail_file(name, expected, "the report has no hash for this file")
    if found != expected:
        return _fail_file(
            name, expected, f"its sha256 is {found}: the report does not belong to this file"
        )
    return GateResult(
        f"file {name}", expected, None, True, "the file is the one the report speaks of"
    )


def _fail_file(name: str, expected: str | None, detail: str, advice: str = CHANGED) -> GateResult:
    return GateResult(f"file {name}", expected or "", None, False, detail, advice)


def _find_problem(path: Path) -> str | None:
    """Return why a path cannot be hashed. Opening a pipe would wait forever, so it is not opened."""
    kind = _get_file_mode(path)
    if kind is None:
        return "a link that leads nowhere" if os.path.islink(path) else "not beside the report"  # noqa: PTH114 - never raises
    return None if stat.S_ISREG(kind) else "no regular file"


def _get_file_mode(path: Path) -> int | None:
    """Return the type of a file, with links followed; None if there is none."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return None


def _resolve_path(folder: Path, name: str) -> Path | None:
    """Return the path of a name in the report's folder or below.

    No name leads elsewhere. Only a link in that folder may.
    """
    if not name or "\0" in name:
        return None
    folder = folder.resolve()
    path = Path(os.path.normpath(folder / name))
    return path if path.is_relative_to(folder) and path != folder else None
