"""What is measured again is what the report speaks of: its task and its original."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.stages.measure import again
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
def test_check_task_other_than_that_of_the_run_raises(
    of_run: Any, given: Any, refused: bool
) -> None:
    report: Any = SimpleNamespace(custom_task=of_run)
    with pytest.raises(InputError) if refused else nullcontext():
        again._check_task(report, given)


@pytest.fixture
def named(tmp_path: Path) -> Any:
    """A report that names an original with its data, both of which are there."""
    parts = [tmp_path / name for name in ("model.onnx", "weights.bin")]
    for part in parts:
        part.write_text(part.name)
    model = SimpleNamespace(path="model.onnx", data=("weights.bin",), sha256=sha256_files(parts))
    return SimpleNamespace(model=model)


def test_find_original_next_to_the_report_with_its_data(named: Any, tmp_path: Path) -> None:
    assert again._find_original(named, tmp_path, None) == tmp_path / "model.onnx"
    (tmp_path / "weights.bin").unlink()
    assert again._find_original(named, tmp_path, None) is None


@pytest.mark.parametrize("sha256", ["0" * 64, "f" * 64])
def test_find_original_of_another_hash_gives_none(named: Any, tmp_path: Path, sha256: str) -> None:
    named.model.sha256 = sha256
    assert again._find_original(named, tmp_path, None) is None


def test_find_original_without_a_name_gives_none(named: Any, tmp_path: Path) -> None:
    named.model.path = None
    assert again._find_original(named, tmp_path, None) is None


@pytest.fixture
def patched_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring a file gives the accuracy that it has, and its path as scores."""
    patched = staticmethod(lambda file: (file, file.path))
    monkeypatch.setattr(again._Remeasurement, "_measure_file", patched)


def make_remeasurement(report: Any) -> again._Remeasurement:
    """What measures a report whose original is not there."""
    evaluator: Any = SimpleNamespace(task=None)
    split: Any = range(10_000)
    return again._Remeasurement(report, Path(), evaluator, split, None, None)


@pytest.mark.usefixtures("patched_scores")
def test_measure_network_returns_the_scores_of_the_exact_file() -> None:
    content = sample()[0]
    content["pruned"]["files"][0]["weight_storage"] = "int8"
    report = report_of(content)
    network, scores = make_remeasurement(report).measure_network(report.pruned)
    assert scores == report.pruned.files[1].path
    assert network.accuracy == report.pruned.files[0].accuracy


@pytest.mark.usefixtures("patched_scores")
@pytest.mark.parametrize("missing", ["original", "pruned", None])
def test_measure_report_drop_needs_both_accuracies(missing: str | None) -> None:
    content = sample(baseline=False)[0]
    parts = {"original": [content["original"]], "pruned": content["pruned"]["files"]}
    for part in parts.get(missing or "", []):
        part["accuracy"] = None
        part.pop("paired_counts", None)
    report = report_of(content)
    measured, _ = make_remeasurement(report).measure_report()
    assert (measured.pruned.drop is None) == (missing is not None)


def test_measure_points_evaluates_only_files_that_are_not_the_baseline_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = report_of(sample()[0])
    accuracy: Any = SimpleNamespace(value=0.125)
    monkeypatch.setattr(again._Remeasurement, "_evaluate", lambda *_: (accuracy, None))
    assert report.baseline is not None
    curve = make_remeasurement(report).measure_points(report.baseline).curve
    assert curve is not None
    expected = [report.baseline.files[0].value, *[0.125] * (len(curve) - 1)]
    assert [point.accuracy for point in curve] == expected


@pytest.mark.usefixtures("patched_scores")
def test_measure_report_without_the_baseline_keeps_its_numbers() -> None:
    report = report_of(sample()[0])
    measured, notes = make_remeasurement(report).measure_report()
    assert measured.baseline is not None
    assert report.baseline is not None
    assert measured.baseline.value == report.baseline.value
    assert measured.difference is not None
    assert measured.difference.value == pytest.approx(0.0091)
    assert "interval" in measured.difference.reasons
    assert any(report.baseline.files[0].path in note for note in notes)
