"""What is measured again is what the report speaks of: its task and its original."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.stages.measure import again as remeasure
from ltp_pipeline.system.hashing import sha256_files
from tests.support.sample_report import report_of, sample


def task(sha256: str, name: str) -> Any:
    """As it is given, and as a report names it."""
    return SimpleNamespace(
        sha256=sha256,
        declared_fingerprint=name,
        fingerprint=name,
        origin="task.py",
        label="its own task",
    )


@pytest.mark.parametrize(
    ("of_run", "given", "refused"),
    [
        (None, None, False),
        (task("b", "m"), task("b", "m"), False),
        (task("b", "m"), None, True),
        (None, task("b", "m"), True),
        (task("b", "m"), task("a", "m"), True),
        (task("b", "m"), task("c", "m"), True),
        (task("b", "m"), task("b", "l"), True),
        (task("b", "m"), task("b", "n"), True),
    ],
)
def test_only_the_task_of_the_run_is_taken(of_run: Any, given: Any, refused: bool) -> None:
    report: Any = SimpleNamespace(custom_task=of_run)
    with pytest.raises(InputError) if refused else nullcontext():
        remeasure._require_task(report, given)


@pytest.fixture
def named(tmp_path: Path) -> Any:
    """A report that names an original with its data, both of which are there."""
    parts = [tmp_path / name for name in ("model.onnx", "weights.bin")]
    for part in parts:
        part.write_text(part.name)
    model = SimpleNamespace(path="model.onnx", data=("weights.bin",), sha256=sha256_files(parts))
    return SimpleNamespace(model=model)


def test_an_original_beside_the_report_is_found_with_its_data(named: Any, tmp_path: Path) -> None:
    assert remeasure._original(named, tmp_path, None) == tmp_path / "model.onnx"
    (tmp_path / "weights.bin").unlink()
    assert remeasure._original(named, tmp_path, None) is None


@pytest.mark.parametrize("sha256", ["0" * 64, "f" * 64])
def test_a_file_of_another_hash_is_not_the_original(
    named: Any, tmp_path: Path, sha256: str
) -> None:
    named.model.sha256 = sha256
    assert remeasure._original(named, tmp_path, None) is None


def test_an_original_without_a_name_is_not_looked_for(named: Any, tmp_path: Path) -> None:
    named.model.path = None
    assert remeasure._original(named, tmp_path, None) is None


def again(report: Any) -> remeasure._Again:
    """Without an original and without data: what is measured is patched."""
    return remeasure._Again(report, Path(), SimpleNamespace(task=None), None, None, None)


def test_networks_are_compared_by_the_evidence_of_the_exact_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = sample()[0]
    content["pruned"]["files"][0]["weight_storage"] = "int8"
    report = report_of(content)
    monkeypatch.setattr(remeasure._Again, "_file", lambda _, file: (file, file.path))
    part, evidence = again(report)._network(report.pruned)
    assert evidence == report.pruned.files[1].path
    assert part.drop == pytest.approx(report.pruned.drop)


@pytest.mark.parametrize("gone", ["original", "pruned"])
def test_a_drop_needs_both_accuracies(monkeypatch: pytest.MonkeyPatch, gone: str) -> None:
    content = sample()[0]
    for part in (content["original"],) if gone == "original" else content["pruned"]["files"]:
        part["accuracy"] = None
    report = report_of(content)
    monkeypatch.setattr(remeasure._Again, "_file", lambda _, file: (file, file.path))
    assert again(report)._network(report.pruned)[0].drop is None


def test_points_of_the_baseline_are_measured_but_for_its_files_which_are_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = report_of(sample()[0])
    monkeypatch.setattr(
        remeasure._Again, "_measured", lambda *_: (SimpleNamespace(value=0.125), None)
    )
    assert report.baseline is not None
    curve = again(report)._points(report.baseline)["curve"]
    assert [point.accuracy for point in curve] == [
        report.baseline.files[0].value,
        *[0.125] * (len(curve) - 1),
    ]


@pytest.mark.parametrize(("ours", "theirs"), [(0.75, 0.5), (None, 0.5), (0.75, None)])
def test_networks_differ_where_both_were_measured(ours: float | None, theirs: float | None) -> None:
    pruned, baseline = (SimpleNamespace(exact_value=value) for value in (ours, theirs))
    found = again(report_of(sample()[0]))._difference(pruned, baseline, None, None)
    assert (found and found.value) == (0.25 if ours and theirs else None)
