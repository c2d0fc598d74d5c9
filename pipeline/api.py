"""The public verbs; the command line is a thin coat over them.

What takes long to import is imported where it is used: a gate needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.gates.evaluation import choose_limits, evaluate_gates
from ltp_pipeline.gates.evidence import check_files, read_report
from ltp_pipeline.results import compare as comparison
from ltp_pipeline.results.complete import drop_unsupported_values
from ltp_pipeline.results.schema import Report
from ltp_pipeline.results.tool_results import TrailEntryInfo
from ltp_pipeline.run_directory.names import REPORT_JSON, SUMS
from ltp_pipeline.run_directory.run_directory import CUSTOM_TASK_HINT, RunDirectory
from ltp_pipeline.settings.checks import check_lambda, check_metric_limits
from ltp_pipeline.settings.load import SETTINGS_FILE, load_settings, update_export
from ltp_pipeline.settings.schema import DataSettings, DistillOutputs, Settings
from ltp_pipeline.system.files import AnyPath, check_output_path
from ltp_pipeline.system.progress import Reporter, SilentReporter

if TYPE_CHECKING:
    from ltp_pipeline.results.schema_parts import GateResult
    from ltp_pipeline.results.tool_results import (
        AccelerationResult,
        InspectionResult,
        QuantizationResult,
        ValidationResult,
    )
    from ltp_pipeline.runner.finish import RunResult
    from ltp_pipeline.tasks.custom import CustomTask

__all__ = [
    "accelerate",
    "compare",
    "export",
    "gate",
    "handoff",
    "init",
    "inspect",
    "pick",
    "quantize",
    "report",
    "run",
    "sparse_ops_library",
    "trail",
    "unpack",
    "validate",
]


def run(
    model: AnyPath,
    /,  # `model` is a section of the settings too
    settings: Settings | None = None,
    *,
    out: AnyPath | None = None,
    fresh: bool = False,
    progress: Reporter | None = None,
    task: Any = None,
    **options: Mapping[str, Any],
) -> RunResult:
    """Prune a model; settings as given, or from ltp.toml beside it with `options` on top (`train={"epochs": 3}`).

    `task` is a task of your own, an object or the path of a file (docs/tasks.md); a mapping is the section of settings.
    """
    model = Path(model)
    if settings is not None and options:
        raise InputError("both settings and options are given", "put the options into the settings")
    if isinstance(task, Mapping):
        options, task = {**options, "task": task}, None
    if settings is None:
        settings = load_settings(model, options=options)
    check_lambda(settings)
    from ltp_pipeline.runner.run import run as run_stages

    folder = Path(out) if out is not None else default_run_directory(model)
    return run_stages(
        model, settings, folder, progress or SilentReporter(), fresh, task=_load_task(task)
    )


def _load_task(task: Any) -> CustomTask | None:
    if task is None:
        return None
    from ltp_pipeline.tasks.custom import CustomTask

    return CustomTask.load(task)


def default_run_directory(model: Path) -> Path:
    """Run directory when none is given: `<model>-ltp` in the working directory."""
    return Path(f"{model.stem}-ltp")


def inspect(model: AnyPath) -> InspectionResult:
    """Describe a model: what would be pruned, what not and why, what is unsupported."""
    from ltp_pipeline.stages.tools.inspect import inspect as look

    return look(model)


def init(
    model: AnyPath,
    data: AnyPath | None = None,
    *,
    task: Any = None,
    force: bool = False,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[Path, tuple[str, ...]]:
    """Write an ltp.toml beside a model, with what it and its data show; its path, and what was found, in lines.

    Sections of `settings` (`{"task": {"kind": "regression"}}`) stand in it as they are, and the rest is found with them.
    """
    from ltp_pipeline.stages.tools.init import init as write

    given = {**(settings or {}), "data": {"path": data, **(settings or {}).get("data", {})}}
    return write(Path(model), given, _load_task(task), force)


def validate(
    model: AnyPath,
    data: DataSettings | AnyPath | None = None,
    *,
    config: AnyPath | None = None,
    against: AnyPath | None = None,
    seed: int | None = None,
    provider: str = "CPUExecutionProvider",
    distill_outputs_as: DistillOutputs | None = None,
    task: Any = None,
) -> ValidationResult:
    """Measure a file in onnxruntime on the test split, and beside another one if given.

    What is not said comes from ltp.toml beside the model or at `config`; for a file in its run, from that run.
    """
    from ltp_pipeline.stages.measure.network import validate as measure

    own = _load_task(task)
    if isinstance(data, DataSettings):
        _check_task(model, own)
        taken = distill_outputs_as or "auto"
        return measure(
            model, data, against=against, seed=seed or 0, provider=provider, imitate=taken, own=own
        )
    settings = _settings_for_file(model, data, config, own)
    return measure(
        model,
        settings.data,
        against=against,
        seed=settings.train.seed if seed is None else seed,
        provider=provider,
        imitate=distill_outputs_as or settings.train.distill_outputs_as,
        asked=settings.task,
        own=own,
    )


def quantize(
    model: AnyPath,
    data: AnyPath | None = None,
    *,
    out: AnyPath,
    config: AnyPath | None = None,
    encoding: str = "packed",
    task: Any = None,
    progress: Reporter | None = None,
) -> QuantizationResult:
    """Write an int8 file of a float file of any origin, proven and measured beside it; settings as for `validate`."""
    from ltp_pipeline.stages.tools.quantize import quantize as write

    own, say = _load_task(task), (progress or SilentReporter()).say
    return write(model, out, _settings_for_file(model, data, config, own), encoding, own, say)


def accelerate(
    model: AnyPath,
    data: AnyPath | None = None,
    *,
    out: AnyPath,
    config: AnyPath | None = None,
    encoding: str = "packed",
    accelerate_min_sparsity: float | None = None,
    task: Any = None,
) -> AccelerationResult:
    """Write a file that uses the sparse kernels, of a file of any origin, and time the two beside each other.

    Proven on the data where these, a task or a `config` are given, else on random inputs. NotFaster where it would not
    be faster on this machine, unless `accelerate_min_sparsity` says from which sparsity on layers are turned over.
    """
    from ltp_pipeline.stages.tools.accelerate import accelerate as write

    own = _load_task(task)
    settings = _settings_for_file(model, data, config, own)
    if accelerate_min_sparsity is not None:
        settings = settings.model_copy(
            update={
                "export": update_export(
                    settings.export, accelerate_min_sparsity=accelerate_min_sparsity
                )
            }
        )
    with_data = own is not None or (
        (data is not None or config is not None) and settings.data.path is not None
    )
    return write(model, out, settings, encoding, with_data, own)


def sparse_ops_library() -> Path:
    """The library of sparse kernels, for `SessionOptions.register_custom_ops_library`; InputError without one."""
    from ltp_pipeline.exporters.sparse_ops import library

    path = library.sparse_ops_library()
    library.query_instruction_sets(
        path
    )  # raises where it is of another version, or cannot be loaded
    return path


def _check_task(model: AnyPath, own: CustomTask | None) -> None:
    """Refuse another task than that of the run which a file lies in."""
    run = RunDirectory(Path(model).parent)
    if own is not None and run.has_custom_task:
        from ltp_pipeline.stages.prepare import check_same_task

        check_same_task(run, own)


def _settings_for_file(
    model: AnyPath, data: AnyPath | None, config: AnyPath | None, own: CustomTask | None
) -> Settings:
    """Settings for a file that is only looked at: as ltp.toml has them; for a file in its own run, as that had them."""
    _check_task(model, own)
    run = RunDirectory(Path(model).parent)
    settings = load_settings(model, config, options={"data": {"path": data}})
    if config is None and not run.path(SETTINGS_FILE).is_file() and run.is_run:
        _, of_run = run.load_inputs()
        if own is None and data is None and run.has_custom_task:
            raise InputError(
                f"the run in {run.root} was made with a task of its own", CUSTOM_TASK_HINT
            )
        path = settings.data.path or (of_run.data.path if own is None else None)
        settings = of_run.model_copy(update={"data": of_run.data.model_copy(update={"path": path})})
    return settings


def trail(run: AnyPath) -> tuple[TrailEntryInfo, ...]:
    """List the networks a run met on its way; for a picked entry, those of its run."""
    from ltp_pipeline.stages.learn_thresholds import load_trail
    from ltp_pipeline.stages.select_entry import pareto_entries

    workspace = RunDirectory(Path(run))
    workspace.load_inputs()
    whole = workspace.find_trail_run()
    entries = load_trail(whole).trail
    best = pareto_entries(entries, whole.manifest.metric)
    files = [workspace.relative_name(whole.path(e.file)) for e in entries]
    return tuple(
        TrailEntryInfo(
            **{**vars(e), "file": file},
            metric=whole.manifest.metric,
            pareto=e.entry in best,
            selected=e.entry == workspace.entry,
        )
        for e, file in zip(entries, files, strict=True)
    )


def pick(
    run: AnyPath,
    entry: int,
    *,
    formats: Sequence[str] = (),
    baseline: str | None = None,
    progress: Reporter | None = None,
    task: Any = None,
    **limits: Any,
) -> RunResult:
    """Finish another entry of a run's trail in RUN/pick-NUMBER, judged by these limits or else by those of the run.

    `baseline` is how much of one of this size is measured, as for `run`; None takes the run's own where it fits.
    """
    from ltp_pipeline.runner.pick import pick as finish

    return finish(
        Path(run), entry, progress or SilentReporter(), formats, baseline, limits, _load_task(task)
    )


def export(
    run: AnyPath,
    formats: Sequence[str] = (),
    *,
    weight_storage: Sequence[str] | None = None,
    progress: Reporter | None = None,
    task: Any = None,
) -> RunResult:
    """Write and prove further files of a finished run, named as for `run`; the files there are stay."""
    from ltp_pipeline.runner.export_again import export_again

    return export_again(
        Path(run), formats, progress or SilentReporter(), weight_storage, _load_task(task)
    )


def unpack(model: AnyPath, out: AnyPath) -> Path:
    """Write a sparse or packed model as a plain dense one, for tools that need it; the path that was written."""
    from ltp_pipeline.exporters.files.decode import to_dense
    from ltp_pipeline.exporters.files.labels import read_metadata, write_metadata
    from ltp_pipeline.graph.storage import read_model_with_data, write_model

    source, target = Path(model), Path(out)
    packed, data = read_model_with_data(source)
    check_output_path(target, [source, *data])
    dense = to_dense(packed)
    if read_metadata(dense):
        dense = write_metadata(dense, format="dense")
    write_model(dense, target)
    return target


def handoff(
    run: AnyPath,
    out: AnyPath | None = None,
    example_samples: int = 0,
    of_baseline: bool = False,
    *,
    task: Any = None,
) -> Path:
    """Gather a finished run's files, report and hashes for those who deploy them, in RUN/handoff or `out`.

    The example holds the first `example_samples` of the test split, from the `task` of a run that has one,
    or else generated ones. With `of_baseline` the network is the run's baseline, in RUN/handoff-baseline, with a report
    of its own.
    """
    from ltp_pipeline.stages import handoff as stage
    from ltp_pipeline.stages.handoff.example import load_samples

    folder = Path(run)
    content = read_report(folder / REPORT_JSON)
    samples = (
        load_samples(folder, content, example_samples, _load_task(task))
        if example_samples
        else None
    )
    if of_baseline:
        make, usual = stage.run_baseline, stage.FOLDER_OF_BASELINE
    else:
        make, usual = stage.run, stage.FOLDER
    return make(content, folder, Path(out) if out is not None else folder / usual, samples)


def report(run: AnyPath) -> Report:
    """Read the report of a finished run and render it again: report.md, report.html, and its handoff if it has one."""
    from ltp_pipeline.stages import handoff as handoff_stage
    from ltp_pipeline.stages.report import render

    workspace = RunDirectory(Path(run))
    content = read_report(workspace.path(REPORT_JSON))
    render.write_pages(content, workspace)
    if workspace.path(SUMS).is_file():
        render.write_hashes(content, workspace)
    if workspace.path(handoff_stage.FOLDER).is_dir():
        handoff_stage.run(content, workspace.root, workspace.path(handoff_stage.FOLDER))
    return content


def gate(
    report: AnyPath | Report,
    *,
    config: AnyPath | None = None,
    report_only: bool = False,
    data: AnyPath | None = None,
    task: Any = None,
    against: AnyPath | None = None,
    progress: Reporter | None = None,
    **limits: Any,
) -> list[GateResult]:
    """Judge the report.json at a path and the files beside it, or with `report_only` the numbers of a report alone.

    Without limits here or in the ltp.toml at `config`, those that the run itself was judged by hold. With `data`, or
    the `task` of a run that had its own, accuracy is measured again, and that is judged; `against` is the original,
    where it is not where the report says.
    """
    gates = load_settings(None, config, options={"gates": limits}).gates
    content = report if isinstance(report, Report) else read_report(report)
    gates = choose_limits(gates, content.settings.get("gates", {}))
    check_metric_limits(content.metric, gates)
    measures = any(given is not None for given in (data, task, against))
    if report_only:
        if measures:
            raise InputError(
                "a report alone has no files to measure",
                "drop report_only, or data, task and against",
            )
        return evaluate_gates(drop_unsupported_values(content), gates)
    if isinstance(report, Report):
        what = "a report in memory has no files beside it to be judged with it"
        raise InputError(what, "give the path of its report.json, or report_only=True")
    path, say = Path(report), (progress or SilentReporter()).say
    files = check_files(content, path)
    judged = drop_unsupported_values(content)
    if all(verdict.passed for verdict in files):
        from ltp_pipeline.gates.recount import check_counts

        check_counts(content, path.parent)
        if measures:
            from ltp_pipeline.stages.measure.again import measure_again

            judged, notes = measure_again(judged, path.parent, data, _load_task(task), against)
            for note in notes:
                say(f"note: {note}")
    elif measures:
        say("note: nothing is measured, because files are not those of the report")
    return [*evaluate_gates(judged, gates), *files]


def compare(
    old: AnyPath | Report,
    new: AnyPath | Report,
    *,
    max_drop: float | None = None,
    max_compression_loss: float | None = None,
    max_size_increase: float | None = None,
    allow_different_models: bool = False,
) -> comparison.Comparison:
    """Compare the reports of two runs of the same model, and judge the limits given."""
    before, after = (r if isinstance(r, Report) else read_report(r) for r in (old, new))
    return comparison.compare(
        before, after, max_drop, max_compression_loss, max_size_increase, allow_different_models
    )
