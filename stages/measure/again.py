"""Measure the accuracy of the files of a report again, in onnxruntime on the test split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ltp_pipeline.data.dataset import Split
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.storage import read_model
from ltp_pipeline.results.complete import complete
from ltp_pipeline.results.schema import (
    BaselineDifference,
    BaselinePoint,
    BaselineResult,
    FileResult,
    HashedFile,
    NetworkResult,
    Report,
)
from ltp_pipeline.results.schema_parts import AccuracyResult
from ltp_pipeline.run_directory.run_directory import CUSTOM_TASK_HINT
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.measure.any_file import make_evaluator
from ltp_pipeline.stages.measure.session import Session, find_library
from ltp_pipeline.system.files import AnyPath
from ltp_pipeline.system.hashing import sha256_files
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_data import open_model_data
from ltp_pipeline.tasks.evaluator import Evaluator, count_pairs

if TYPE_CHECKING:
    from ltp_pipeline.system.arrays import Array

NetworkT = TypeVar("NetworkT", bound=NetworkResult)
NO_ORIGINAL = "the original was not measured again"
NOT_MEASURED = {
    "baseline": "the baseline was not measured again",
    "gradual_baseline": "the gradual baseline was not measured again",
    "ltp": "LTP's network was not measured again",
}  # by key of the network
TRAIN_KEYS = ("seed", "distill_outputs_as")


def measure_again(
    report: Report,
    folder: Path,
    data: AnyPath | None,
    custom_task: CustomTask | None = None,
    against: AnyPath | None = None,
) -> tuple[Report, list[str]]:
    """Measure the files of a report again, with samples prepared as its settings say.

    The original and the baselines are measured if their files are there. Otherwise the numbers of
    the report remain.

    Args:
        report: The report.
        folder: Its folder, with the files of the pruned network.
        data: The data of the run; None if the custom task brings them.
        custom_task: The custom task of the run, if it had one.
        against: The original model, if it is not where the report says.

    Returns:
        The report with the new accuracies, and notes.

    Raises:
        InputError: The data, the task or the original are not those of the run.
    """
    _check_task(report, custom_task)
    settings = _load_run_settings(report, data)
    if not report.pruned.files:
        raise InputError(
            "the report names no file to measure", "pass the report.json of a finished run"
        )
    path = folder / report.pruned.files[0].path
    file = read_model_file(path)
    splits = open_model_data(file, settings.data, settings.train.seed, settings.task, custom_task)
    session = Session(path, is_foreign=True)
    original_path = _find_original(report, folder, against)
    original = None
    if original_path is not None:
        original = Session(original_path, is_foreign=True)
    evaluator, splits = make_evaluator(
        splits,
        file.model.graph,
        session,
        original,
        settings.task,
        settings.train.distill_outputs_as,
        custom_task,
    )
    metric = evaluator.task.metric
    if metric != report.metric:
        raise InputError(
            f"these data are measured by {metric.described}, and the report by "
            f"{report.metric.described}",
            "pass the data of the run, and its task: --task FILE.py",
        )
    accuracy = scores = None
    if original is not None:
        accuracy, scores = evaluator.evaluate_original(original.compute_outputs, splits.test)
    remeasurement = _Remeasurement(report, folder, evaluator, splits.test, accuracy, scores)
    return remeasurement.measure_report()


def _check_task(report: Report, custom_task: CustomTask | None) -> None:
    """Raise InputError if the custom task is not that of the run."""
    expected = report.custom_task
    if expected is None:
        if custom_task is not None:
            raise InputError(
                f"the run of the report had no custom task, and {custom_task.origin} was passed",
                "remove --task",
            )
        return
    if custom_task is None:
        raise InputError(f"the run of the report used {expected.label}", CUSTOM_TASK_HINT)
    actual = (custom_task.sha256, custom_task.declared_fingerprint)
    if actual != (expected.sha256, expected.fingerprint):
        raise InputError(
            f"{custom_task.origin} is not the task of the run, {expected.label}", CUSTOM_TASK_HINT
        )


def _load_run_settings(report: Report, data: AnyPath | None) -> Settings:
    """Return the settings by which the run prepared and split its samples."""
    train = report.settings.get("train", {})
    options = {
        "data": {**report.settings.get("data", {}), "path": data},
        "task": report.settings.get("task", {}),
        "train": {key: train.get(key) for key in TRAIN_KEYS},
    }
    return load_settings(None, options=options)


def _find_original(report: Report, folder: Path, against: AnyPath | None) -> Path | None:
    """Return the path of the original, or None if it is not where the report says.

    Raises:
        InputError: `against` is not the original.
    """
    model = report.model
    if against is not None:
        if read_model_file(against).sha256 != model.sha256:
            raise InputError(
                f"{against} is not the original of the report: its hash differs",
                "pass the model of the run",
            )
        return Path(against)
    if model.path is None:
        return None
    for path in (folder / model.path, Path(model.path)):
        parts = [path, *(path.parent / name for name in model.data)]
        if all(part.is_file() for part in parts) and sha256_files(parts) == model.sha256:
            return path
    return None


@dataclass(frozen=True)
class _Remeasurement:
    """What is measured again, and by what; original values are None if its file is not there."""

    report: Report
    folder: Path
    evaluator: Evaluator
    split: Split
    original: AccuracyResult | None
    original_scores: Array | None

    def measure_report(self) -> tuple[Report, list[str]]:
        """Return the report with new accuracies, and notes."""
        report = self.report
        notes = []
        splits = {**report.data.splits, "test": len(self.split)}
        changes: dict[str, Any] = {"data": report.data.replace(splits=splits)}
        if self.original is None:
            notes.append(f"{NO_ORIGINAL}: pass it with --against; its reported accuracy is used")
        else:
            changes["original"] = report.original.replace(accuracy=self.original)
        changes["pruned"], scores = self.measure_network(report.pruned)
        measured_keys = ["pruned"]
        for key, network in report.other_networks.items():
            missing = self._find_missing_file(network)
            if missing is None:
                measured_keys.append(key)
                part, other_scores = self.measure_network(network)
                difference = self._compare(scores, other_scores)
            else:
                notes.append(f"{NOT_MEASURED[key]}: {missing} is not next to the report")
                # Counts of samples compare the network with the old original.
                files = tuple(file.replace(paired_counts=None) for file in network.files)
                part = network.replace(files=files)
                difference = BaselineDifference(reasons={"interval": NOT_MEASURED[key]})
            if isinstance(part, BaselineResult):
                changes["baseline"] = part if missing else self.measure_points(part)
                changes["difference"] = difference
            else:
                changes[key] = part.replace(difference=difference)
        measured = complete(report.replace(**changes))
        for key in measured_keys:
            before: NetworkResult = getattr(report, key)
            after: NetworkResult = getattr(measured, key)
            if before.value is not None and after.value is not None:
                notes.append(
                    f"{after.method} measured again: {report.metric.format_value(after.value)}, "
                    f"the report says {report.metric.format_value(before.value)}"
                )
        return measured, notes

    def measure_network(self, part: NetworkT) -> tuple[NetworkT, Array]:
        """Measure the files of a network.

        Returns:
            The network, and the scores of the file by which networks are compared.
        """
        measured = [self._measure_file(file) for file in part.files]
        metric = self.report.metric
        least, least_scores = metric.find_worst(measured, lambda pair: pair[0].value or 0.0)
        interval = None
        reasons = part.reasons
        if self.original_scores is not None:
            task = self.evaluator.task
            interval = task.compute_drop_interval(self.original_scores, least_scores)
        if interval is None:
            reasons = {**reasons, "drop_interval": NO_ORIGINAL}
        part = part.replace(
            files=tuple(file for file, _ in measured),
            accuracy=least.accuracy,
            drop=None,
            drop_interval=interval,
            reasons=reasons,
        )
        exact_scores = next(scores for file, scores in measured if file is part.exact)
        return part, exact_scores

    def measure_points(self, baseline: BaselineResult) -> BaselineResult:
        """Measure the points of the baseline whose files are not among its own."""
        values = {file.path: file.value for file in baseline.files}

        def measure(point: BaselinePoint) -> BaselinePoint:
            if point.path not in values:
                values[point.path] = self._evaluate(point.path)[0].value
            return point.replace(accuracy=values[point.path])

        curve = baseline.curve and tuple(map(measure, baseline.curve))
        unstructured = baseline.unstructured and measure(baseline.unstructured)
        return baseline.replace(curve=curve, unstructured=unstructured)

    def _measure_file(self, file: FileResult) -> tuple[FileResult, Array]:
        accuracy, scores = self._evaluate(file.path)
        counts = None
        if self.original_scores is not None:
            counts = count_pairs(self.evaluator.task, self.original_scores, scores)
        return file.replace(accuracy=accuracy, paired_counts=counts), scores

    def _evaluate(self, name: str) -> tuple[AccuracyResult, Array]:
        path = self.folder / name
        library = find_library(read_model(path))
        positions = [output.position for output in self.evaluator.task.outputs]
        session = Session(path, positions=positions, library=library, is_foreign=True)
        return self.evaluator(session.compute_outputs, self.split)

    def _find_missing_file(self, network: NetworkResult) -> str | None:
        """Return the path of the first file of a network that is not there, or None."""
        files: list[HashedFile] = [*network.files]
        if isinstance(network, BaselineResult):
            files += self.report.baseline_points.values()
        for file in files:
            if not (self.folder / file.path).is_file():
                return file.path
        return None

    def _compare(self, scores: Array, baseline_scores: Array) -> BaselineDifference:
        task = self.evaluator.task
        return BaselineDifference(
            interval=task.compute_drop_interval(scores, baseline_scores),
            paired_counts=count_pairs(task, scores, baseline_scores),
        )
