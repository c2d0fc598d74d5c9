"""Check the gate results of a report, and the files that it names by their hashes.

The exported files must be beside the report, and everything beside it must be its own. A file is
opened only if it is a regular file, and only to hash it. What the files contain is checked by
`recount`, after their hashes.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from ltp_pipeline.errors import InputError
from ltp_pipeline.gates.evaluation import (
    evaluate_run_gates,
    make_gate_settings,
    summarize_status,
)
from ltp_pipeline.results import read_write
from ltp_pipeline.results.consistency import ContradictionError, is_same
from ltp_pipeline.results.schema import HashedFile, Report
from ltp_pipeline.results.schema_parts import GateResult
from ltp_pipeline.run_directory.names import REPORT_JSON, SUMS
from ltp_pipeline.settings.checks import check_metric_limits
from ltp_pipeline.system.files import AnyPath
from ltp_pipeline.system.hashing import read_checksums, sha256_file, sha256_files

MISSING = "put the exported files next to the report, or pass --report-only to check only numbers"
CHANGED = "restore the files of the report, or write it again: `ltp-pipeline run`"


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
        stated_values = (stated.name, stated.limit, stated.value, stated.passed)
        values = (computed.name, computed.limit, computed.value, computed.passed)
        if not is_same(stated_values, values):
            raise ContradictionError(f"gates.{number}", stated_values, values, where)
    status = summarize_status(expected)
    if report.status != status:
        raise ContradictionError("status", report.status, status, where)


def check_files(report: Report, path: Path) -> list[GateResult]:
    """Compare the files beside a report with their hashes in it.

    The exported files of the pruned network must be there. The original, the networks
    that it is compared with, the trail and the list of hashes may be missing.

    Args:
        report: The report.
        path: Path of the report.

    Returns:
        A result for each file that is there or must be.
    """
    folder = path.parent
    results = []
    required = _collect_hashes(report.pruned.files)
    if not required:
        reason = "the report names no exported file"
        results.append(GateResult("files", "", None, False, reason, MISSING))
    for name, expected in required.items():
        results.append(_check_hash(name, expected, [folder / name]))
    hashes = _collect_hashes([*report.baseline_points.values()])
    for network in reversed(report.other_networks.values()):
        hashes = _collect_hashes(network.files) | hashes
    for entry in report.trail:
        if entry.sha256:
            hashes |= entry.hashes
    optional: list[tuple[str, str | None, Sequence[str]]] = []
    model = report.model
    if model.path and model.path not in required:  # an exported file may have replaced it
        optional.append((model.path, model.sha256, model.data))
    for name, expected in hashes.items():
        optional.append((name, expected, ()))
    for name, expected, data in optional:
        file = _resolve_inside(folder, name)
        if file is not None and _read_mode(file) is not None:
            parts = [file, *(file.parent / part for part in data)]
            results.append(_check_hash(name, expected, parts))
    list_result = _check_hash_list(report, path, required)
    if list_result is not None:
        results.append(list_result)
    return results


def _check_hash_list(
    report: Report, path: Path, required: dict[str, str | None]
) -> GateResult | None:
    """Check that SHA256SUMS, if it is there, agrees with the report.

    It must list the required files and the report itself.
    """
    list_path = path.with_name(SUMS)
    if not os.path.lexists(list_path):
        return None
    own_hash: dict[str, str | None] = {}
    try:
        listed = read_checksums(list_path, CHANGED)
        if path.name in listed or path.name == REPORT_JSON:
            own_hash[path.name] = sha256_file(path)
    except InputError as error:
        return _make_failure(SUMS, None, error.message)
    for name, expected in {**report.hashes, **own_hash}.items():
        if name not in listed and (name in required or name in own_hash):
            return _make_failure(SUMS, None, f"it does not list {name}")
        if name in listed and listed[name] != expected:
            source = "the report"
            if name in own_hash:
                source = "that file"
            return _make_failure(SUMS, None, f"its hash of {name} differs from that of {source}")
    return GateResult(f"file {SUMS}", "", None, True, "it agrees with the report")


def _collect_hashes(files: Sequence[HashedFile]) -> dict[str, str | None]:
    """Return the hashes of files and of their external data, by path."""
    hashes: dict[str, str | None] = {}
    for file in files:
        hashes |= file.hashes
    return hashes


def _check_hash(name: str, expected: str | None, parts: Sequence[Path]) -> GateResult:
    """Compare the hash of a file, together with its external data, with the hash in the report.

    A part is opened only if it is a regular file, because opening a pipe would wait forever.
    """
    for part in parts:
        mode = _read_mode(part)
        detail = "not a regular file"
        advice = CHANGED
        if mode is None:
            detail = "not next to the report"
            advice = MISSING
            if os.path.islink(part):  # noqa: PTH114 - never raises
                detail = "a link that leads nowhere"
        elif stat.S_ISREG(mode):
            continue
        if len(parts) > 1:
            detail = f"{part.name} is {detail}"
        return _make_failure(name, expected, detail, advice)
    try:
        actual = sha256_files(parts)
    except OSError as error:
        detail = f"cannot be read: {error.strerror}"
        return _make_failure(name, expected, detail, "check the file's permissions")
    if not expected:
        return _make_failure(name, expected, "the report has no hash for this file")
    if actual != expected:
        detail = f"its SHA-256 is {actual}, which is not that of the report"
        return _make_failure(name, expected, detail)
    return GateResult(f"file {name}", expected, None, True, "the file has the hash of the report")


def _make_failure(
    name: str, expected: str | None, detail: str, advice: str = CHANGED
) -> GateResult:
    return GateResult(f"file {name}", expected or "", None, False, detail, advice)


def _read_mode(path: Path) -> int | None:
    """Return the mode of a file or of what a link leads to; None if there is nothing."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return None


def _resolve_inside(folder: Path, name: str) -> Path | None:
    """Return the path of a name in a folder; None if the name leads out of the folder.

    Links are not followed: a link in the folder may lead elsewhere.
    """
    if not name or "\0" in name:
        return None
    folder = folder.resolve()
    path = Path(os.path.normpath(folder / name))
    if path == folder or not path.is_relative_to(folder):
        return None
    return path
