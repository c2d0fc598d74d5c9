"""Measure the accuracy of a report's files again, in onnxruntime on the test split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ltp_pipeline.data.dataset import Split
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.storage import read_model
from ltp_pipeline.results.schema import (
    BaselineDifference,
    BaselinePoint,
    BaselineResult,
    FileResult,
    NetworkResult,
    Report,
)
from ltp_pipeline.results.schema_parts import AccuracyResult
from ltp_pipeline.run_directory.run_directory import CUSTOM_TASK_HINT
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.measure.network import find_evaluator
from ltp_pipeline.stages.measure.session import Session, library_for
from ltp_pipeline.system.files import AnyPath
from ltp_pipeline.system.hashing import sha256_files
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_data import open_model_data
from ltp_pipeline.tasks.evaluator import Evaluator, count_pairs

if TYPE_CHECKING:
    from ltp_pipeline.system.arrays import Array

NetworkT = TypeVar("NetworkT", bound=NetworkResult)
NO_ORIGINAL = "the original was not measured again"
SECTIONS = ("data", "task")
OF_TRAINING = ("seed", "distill_outputs_as")


def measure_again(
    report: Report,
    folder: Path,
    data: AnyPath | None,
    own: CustomTask | None = None,
    against: AnyPath | None = None,
) -> tuple[Report, list[str]]:
    """The report with accuracies as they are measured now, prepared as its settings say; and what is to be noted.

    The files of the pruned network must be beside it. The original and the baseline are measured where they are there;
    where they are not, the report's own numbers stand.
    """
    _require_task(report, own)
    settings = _settings(report, data)
    if not report.pruned.files:
        raise InputError(
            "the report names no file to measure", "give the report.json of a finished run"
        )
    path = folder / report.pruned.files[0].path
    file = import_model.read_model_file(path)
    opened = open_model_data(file, settings.data, settings.train.seed, settings.task, own)
    session, original = Session(path, is_foreign=True), _original(report, folder, against)
    other = None if original is None else Session(original, is_foreign=True)
    graph, imitate = file.model.graph, settings.train.distill_outputs_as
    evaluator, opened = find_evaluator(opened, graph, session, other, settings.task, imitate, own)
    metric = evaluator.task.metric
    if metric != report.metric:
        what = f"with these data {metric.described} is measured, and the report has {report.metric.described}"
        raise InputError(what, "give the data of the run, and its task: --task FILE.py")
    measured = None if other is None else evaluator.evaluate_original(other.outputs, opened.test)
    return _Again(report, folder, evaluator, opened.test, *(measured or (None, None))).told()


def _require_task(report: Report, own: CustomTask | None) -> None:
    if report.custom_task is None:
        if own is not None:
            raise InputError(
                f"the run of the report had no task of its own, and {own.origin} is given",
                "leave it out",
            )
        return
    if own is None:
        raise InputError(
            f"the run of the report was made with {report.custom_task.label}", CUSTOM_TASK_HINT
        )
    if (own.sha256, own.declared_fingerprint) != (
        report.custom_task.sha256,
        report.custom_task.fingerprint,
    ):
        raise InputError(
            f"{own.origin} is another task than that of the run, {report.custom_task.label}",
            CUSTOM_TASK_HINT,
        )


def _settings(report: Report, data: AnyPath | None) -> Settings:
    """How samples are prepared and divided, as the run had it."""
    of_run: dict[str, dict[str, Any]] = {
        name: dict(report.settings.get(name, {})) for name in SECTIONS
    }
    of_run["train"] = {key: report.settings.get("train", {}).get(key) for key in OF_TRAINING}
    of_run["data"].pop("path", None)
    return load_settings(None, options={**of_run, "data": {**of_run["data"], "path": data}})


def _original(report: Report, folder: Path, against: AnyPath | None) -> Path | None:
    """The original: the file given, which must be it, or the one that the report names, where that is it."""
    model = report.model
    if against is not None:
        found = import_model.read_model_file(against)
        if found.sha256 != model.sha256:
            raise InputError(
                f"{against} is not the original of the report: it has another hash",
                "give that model",
            )
        return Path(against)
    for path in (folder / model.path, Path(model.path)) if model.path else ():
        parts = [path, *(path.parent / name for name in model.data)]
        if all(part.is_file() for part in parts) and sha256_files(parts) == model.sha256:
            return path
    return None


@dataclass(frozen=True)
class _Again:
    """What is measured, and by what; `original` and `evidence` are None where the original is not there."""

    report: Report
    folder: Path
    evaluator: Evaluator
    split: Split
    original: Any
    evidence: Array | None

    def told(self) -> tuple[Report, list[str]]:
        report, metric = self.report, self.report.metric
        notes = (
            []
            if self.original
            else [f"{NO_ORIGINAL}: give it with --against; its reported accuracy stands"]
        )
        pruned, ours = self._network(report.pruned)
        baseline, theirs = report.baseline, None
        if baseline is not None:
            listed = (*baseline.files, *report.baseline_points.values())
            absent = [f.path for f in listed if not (self.folder / f.path).is_file()]
            if absent:
                notes.append(
                    f"the baseline was not measured again: {absent[0]} is not beside the report"
                )
            else:
                baseline, theirs = self._network(baseline)
                baseline = baseline.model_copy(update=self._points(baseline))
        for part, said in (
            (pruned, report.pruned),
            *([(baseline, report.baseline)] if theirs is not None else []),
        ):
            if part and said and part.value is not None and said.value is not None:
                now, then = metric.shown(part.value), metric.shown(said.value)
                notes.append(f"{part.method} measured again: {now}, the report says {then}")
        original = (
            report.original.model_copy(update={"accuracy": self._plain(self.original)})
            if self.original
            else report.original
        )
        changes = {
            "original": original,
            "pruned": pruned,
            "baseline": baseline,
            "difference": self._difference(pruned, baseline, ours, theirs),
        }
        return report.model_copy(update=changes), notes

    def _network(self, part: NetworkT) -> tuple[NetworkT, Array]:
        """A network through all its files, and the evidence of the one by which networks are compared."""
        task, metric = self.evaluator.task, self.report.metric
        found = [self._file(file) for file in part.files]
        files = tuple(file for file, _ in found)
        least, evidence = metric.worst(found, lambda pair: pair[0].value or 0.0)
        original = self.report.original.value if self.original is None else self.original.value
        interval = (
            None if self.evidence is None else task.compute_drop_interval(self.evidence, evidence)
        )
        changes = {
            "files": files,
            "accuracy": least.accuracy,
            "drop": None
            if original is None or least.value is None
            else metric.drop(original, least.value),
            "drop_interval": interval,
            "reasons": {**part.reasons, **({} if interval else {"drop_interval": NO_ORIGINAL})},
        }
        part = part.model_copy(update=changes)
        return part, next(evidence for file, evidence in found if file is part.exact)

    def _file(self, file: FileResult) -> tuple[FileResult, Array]:
        accuracy, evidence = self._measured(file.path)
        task, before = self.evaluator.task, self.evidence
        counts = None if before is None else count_pairs(task, before, evidence)
        return file.model_copy(
            update={"accuracy": self._plain(accuracy), "paired_counts": counts}
        ), evidence

    def _measured(self, name: str) -> Any:
        positions = [output.position for output in self.evaluator.task.outputs]
        path = self.folder / name
        model = read_model(path)
        session = Session(path, positions=positions, library=library_for(model), is_foreign=True)
        return self.evaluator(session.outputs, self.split)

    def _points(self, baseline: BaselineResult) -> dict[str, Any]:
        """The points of the baseline with their accuracies, by the keys of the report."""
        known = {file.path: file.value for file in baseline.files}

        def again(point: BaselinePoint) -> BaselinePoint:
            value = (
                known[point.path] if point.path in known else self._measured(point.path)[0].value
            )
            return point.model_copy(update={"accuracy": value})

        curve, single = baseline.curve, baseline.unstructured
        return {
            "curve": curve and tuple(again(point) for point in curve),
            "unstructured": None if single is None else again(single),
        }

    def _difference(
        self,
        pruned: NetworkResult,
        baseline: NetworkResult | None,
        ours: Array,
        theirs: Array | None,
    ) -> BaselineDifference | None:
        if baseline is None or pruned.exact_value is None or baseline.exact_value is None:
            return None
        value = self.report.metric.drop(pruned.exact_value, baseline.exact_value)
        if theirs is None:
            return BaselineDifference(
                value=value, reasons={"interval": "the baseline was not measured again"}
            )
        task = self.evaluator.task
        return BaselineDifference(
            value=value,
            interval=task.compute_drop_interval(ours, theirs),
            paired_counts=count_pairs(task, ours, theirs),
        )

    @staticmethod
    def _plain(found: Any) -> AccuracyResult:
        return AccuracyResult(**vars(found))
