"""Functions of the Python interface; each command of the command line calls one of them.

Modules that take long to import are imported where they are used: a gate needs no torch.
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
from ltp_pipeline.results.schema_parts import TrailEntryInfo
from ltp_pipeline.run_directory.names import REPORT_JSON, SUMS
from ltp_pipeline.run_directory.run_directory import CUSTOM_TASK_HINT, RunDirectory
from ltp_pipeline.settings.checks import check_lambda, check_metric_limits
from ltp_pipeline.settings.load import SETTINGS_FILE, load_settings, update_export
from ltp_pipeline.settings.schema import DataSettings, DistillOutputs, Settings
from ltp_pipeline.system.files import AnyPath, check_output_path
from ltp_pipeline.system.progress import Reporter, SilentReporter

if TYPE_CHECKING:
    from ltp_pipeline.results.schema_parts import GateResult
    from ltp_pipeline.runner.finish import RunResult
    from ltp_pipeline.stages.measure.any_file import ValidationResult
    from ltp_pipeline.stages.tools.accelerate import AccelerationResult
    from ltp_pipeline.stages.tools.inspect import InspectionResult
    from ltp_pipeline.stages.tools.quantize import QuantizationResult
    from ltp_pipeline.tasks.custom import CustomTask


def run(
    model: AnyPath,
    /,
    settings: Settings | None = None,
    *,
    out: AnyPath | None = None,
    fresh: bool = False,
    progress: Reporter | None = None,
    task: Any = None,
    **options: Mapping[str, Any],
) -> RunResult:
    """Prune a model, verify the exported files and report them next to the baseline.

    Args:
        model: Path of the ONNX model.
        settings: All settings of the run. By default they are loaded from the ltp.toml beside
            the model.
        out: Run directory. Default: `<model>-ltp` in the working directory.
        fresh: Start over instead of resuming an earlier run in that directory.
        progress: Reporter of the progress; by default nothing is printed.
        task: Custom task, as an object or the path of a Python file. A mapping is the section
            [task] of the settings.
        options: Sections of settings that override ltp.toml, for example `train={"epochs": 3}`.

    Returns:
        The run directory, the report, and the results of the gates.

    Raises:
        LtpError: Settings, data or model are invalid, or training or export fails. A gate that
            fails raises nothing.
    """
    if settings is not None and options:
        message = f"settings are passed as a whole and by section ({', '.join(options)})"
        raise InputError(message, "put the sections into the settings")
    if isinstance(task, Mapping):
        options["task"] = task
        task = None
    if settings is None:
        settings = load_settings(model, options=options)
    check_lambda(settings)
    from ltp_pipeline.runner.run import run as run_stages

    path = Path(model)
    directory = Path(f"{path.stem}-ltp") if out is None else Path(out)
    reporter = progress or SilentReporter()
    return run_stages(path, settings, directory, reporter, fresh, task=_load_task(task))


def inspect(model: AnyPath) -> InspectionResult:
    """Describe a model without data.

    Returns:
        The layer weights that `run` would prune, why others cannot be pruned, and every reason
        why the model is not supported.
    """
    from ltp_pipeline.stages.tools.inspect import inspect as inspect_model

    return inspect_model(model)


def init(
    model: AnyPath,
    data: AnyPath | None = None,
    *,
    task: Any = None,
    force: bool = False,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[Path, tuple[str, ...]]:
    """Write an ltp.toml beside a model, with settings inferred from the model and its data.

    Args:
        model: Path of the ONNX model.
        data: File or folder of the data.
        task: Custom task, as for `run`.
        force: Replace an ltp.toml that exists, but keep its [data] and [task].
        settings: Values by section and key that are written as they are. The others are
            inferred with them.

    Returns:
        The path of the file, and the findings as lines of text.
    """
    from ltp_pipeline.stages.tools.init import init as write_settings

    values = dict(settings or {})
    values["data"] = {"path": data, **values.get("data", {})}
    return write_settings(Path(model), values, _load_task(task), force)


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
    """Measure accuracy and latency of a file in onnxruntime, on the test split.

    Settings come from the ltp.toml beside the model; for a file in its run, from that run.

    Args:
        model: Path of the ONNX file.
        data: File or folder of the data, or settings of the data that replace all others.
        config: File of settings, instead of the one beside the model.
        against: Path of a file to compare with, for example the original.
        seed: Seed that splits the data, if they have no splits. Default: train.seed.
        provider: Execution provider of onnxruntime.
        distill_outputs_as: Kind of the outputs if there are no labels. Default:
            train.distill_outputs_as.
        task: Custom task, as for `run`.
    """
    from ltp_pipeline.stages.measure.any_file import validate as measure

    custom_task = _load_task(task)
    if isinstance(data, DataSettings):
        _check_task(model, custom_task)
        settings = Settings(data=data)
    else:
        settings = _load_file_settings(model, data, config, custom_task)
    return measure(
        model,
        settings.data,
        against=against,
        seed=settings.train.seed if seed is None else seed,
        provider=provider,
        distill_outputs_as=distill_outputs_as or settings.train.distill_outputs_as,
        task_settings=settings.task,
        custom_task=custom_task,
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
    """Write an int8 file of any float file, verify it and measure both.

    Args:
        model: Path of the ONNX file.
        data: File or folder of the data.
        out: Path of the int8 file.
        config: File of settings, as for `validate`.
        encoding: Encoding of the int8 file: packed, dense or sparse.
        task: Custom task, as for `run`.
        progress: Reporter of the progress.
    """
    from ltp_pipeline.stages.tools.quantize import quantize as write_int8

    custom_task = _load_task(task)
    settings = _load_file_settings(model, data, config, custom_task)
    reporter = progress or SilentReporter()
    return write_int8(model, out, settings, encoding, custom_task, reporter.say)


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
    """Write a file of any float file that uses sparse operators, verify it and time both.

    It is verified with the data if `data`, `config` or `task` is passed, else with random inputs.

    Args:
        model: Path of the ONNX file.
        data: File or folder of the data.
        out: Path of the fast file.
        config: File of settings, as for `validate`.
        encoding: Encoding of the fast file: packed, dense or sparse.
        accelerate_min_sparsity: Convert layers from this sparsity on, whether or not they are
            faster on this machine.
        task: Custom task, as for `run`.

    Raises:
        NotFaster: The file would not be faster on this machine. It is not written.
    """
    from ltp_pipeline.stages.tools.accelerate import accelerate as write_fast

    custom_task = _load_task(task)
    settings = _load_file_settings(model, data, config, custom_task)
    if accelerate_min_sparsity is not None:
        changes = {"accelerate_min_sparsity": accelerate_min_sparsity}
        export_settings = update_export(settings.export, **changes)
        settings = settings.model_copy(update={"export": export_settings})
    is_data_passed = data is not None or config is not None
    has_data = custom_task is not None or (is_data_passed and settings.data.path is not None)
    return write_fast(model, out, settings, encoding, has_data, custom_task)


def sparse_ops_library() -> Path:
    """Return the library for `SessionOptions.register_custom_ops_library` of onnxruntime.

    Raises:
        InputError: The library is missing, of another version, or cannot be loaded.
    """
    from ltp_pipeline.exporters.sparse_ops import library

    path = library.sparse_ops_library()
    library.query_instruction_sets(path)
    return path


def trail(run: AnyPath) -> tuple[TrailEntryInfo, ...]:
    """List the networks on the trail of a run; for a picked entry, of the run it belongs to."""
    from ltp_pipeline.stages.learn_thresholds import load_trail
    from ltp_pipeline.stages.select_entry import pareto_entries

    directory = RunDirectory(Path(run))
    directory.load_inputs()
    trail_run = directory.find_trail_run()
    entries = load_trail(trail_run).trail
    metric = trail_run.manifest.metric
    best_entries = pareto_entries(entries, metric)
    rows = []
    for entry in entries:
        values = {
            **dict(entry),
            "file": directory.relative_name(trail_run.path(entry.file)),
            "metric": metric,
            "pareto": entry.entry in best_entries,
            "selected": entry.entry == directory.entry,
        }
        rows.append(TrailEntryInfo(**values))
    return tuple(rows)


def pick(
    run: AnyPath,
    entry: int,
    *,
    formats: Sequence[str] = (),
    baseline: str | None = None,
    best: bool | None = None,
    progress: Reporter | None = None,
    task: Any = None,
    **limits: Any,
) -> RunResult:
    """Finish another entry of the trail in RUN/pick-ENTRY: fine-tune, export, measure, report.

    Args:
        run: Run directory.
        entry: Number of the entry.
        formats: Files to write. Default: those of the run.
        baseline: Mode of the baseline, as in [baseline]. None takes the baseline of the run if it
            has the same size.
        best: Export a baseline if it is better than the entry on the validation split beyond
            noise. Default: the setting of the run.
        progress: Reporter of the progress.
        task: Custom task, if the run had one.
        limits: Limits of gates by name. Default: those of the run.
    """
    from ltp_pipeline.runner.pick import pick as finish_entry

    reporter = progress or SilentReporter()
    return finish_entry(
        Path(run), entry, reporter, formats, baseline, limits, _load_task(task), best
    )


def export(
    run: AnyPath,
    formats: Sequence[str] = (),
    *,
    weight_storage: Sequence[str] | None = None,
    progress: Reporter | None = None,
    task: Any = None,
) -> RunResult:
    """Write and verify further files of a finished run. Files that exist stay.

    Args:
        run: Run directory.
        formats: Files to write, named as for `run`.
        weight_storage: Rounded files to write: fp16 or int8. None writes what the run had.
        progress: Reporter of the progress.
        task: Custom task, if the run had one.
    """
    from ltp_pipeline.runner.export_again import export_again

    reporter = progress or SilentReporter()
    return export_again(Path(run), formats, reporter, weight_storage, _load_task(task))


def unpack(model: AnyPath, out: AnyPath) -> Path:
    """Write a sparse or packed file as a dense one, for tools that need it.

    Returns:
        The path that was written.
    """
    from ltp_pipeline.exporters.files.decode import to_dense
    from ltp_pipeline.exporters.files.labels import read_metadata, write_metadata
    from ltp_pipeline.graph.storage import read_model_with_data, write_model

    source = Path(model)
    target = Path(out)
    encoded, data_files = read_model_with_data(source)
    check_output_path(target, [source, *data_files])
    dense = to_dense(encoded)
    if read_metadata(dense):
        dense = write_metadata(dense, format="dense")
    write_model(dense, target)
    return target


def handoff(
    run: AnyPath,
    out: AnyPath | None = None,
    example_samples: int = 0,
    *,
    network: str = "best",
    task: Any = None,
) -> Path:
    """Collect the files of a finished run for deployment, with report, hashes and HANDOFF.md.

    Args:
        run: Run directory.
        out: Directory to write. Default: RUN/handoff, or RUN/handoff-NETWORK for a network other
            than "best" and "pruned".
        example_samples: Number of test samples in example.npz; 0 puts random ones into it.
        network: "pruned" for the files of the run, "baseline", "gradual" or "ltp" for a network
            that it was compared with, or "best": the files of the run, unless a baseline is better
            on the validation split beyond noise. A network other than "pruned" gets a report of
            its own.
        task: Custom task that has the test samples, if the run had one.

    Returns:
        The directory that was written.
    """
    from ltp_pipeline.runner.handoff import BEST, check_name, deliver_network, find_key
    from ltp_pipeline.stages.handoff import FOLDER, HANDOFF_FOLDERS
    from ltp_pipeline.stages.handoff.example import load_samples

    check_name(network)
    directory = Path(run)
    content = read_report(directory / REPORT_JSON)
    samples = None
    if example_samples:
        samples = load_samples(directory, content, example_samples, _load_task(task))
    folder = FOLDER if network == BEST else HANDOFF_FOLDERS[find_key(content, network)]
    target = directory / folder if out is None else Path(out)
    return deliver_network(content, directory, target, network, samples)


def report(run: AnyPath) -> Report:
    """Render report.md and report.html of a finished run again, and its handoff if it has one.

    Returns:
        The report.
    """
    from ltp_pipeline.runner.handoff import deliver_network
    from ltp_pipeline.stages.handoff import FOLDER
    from ltp_pipeline.stages.report import render

    directory = RunDirectory(Path(run))
    content = read_report(directory.path(REPORT_JSON))
    render.write_pages(content, directory)
    if directory.path(SUMS).is_file():
        render.write_hashes(content, directory)
    handoff_directory = directory.path(FOLDER)
    if handoff_directory.is_dir():
        deliver_network(content, directory.root, handoff_directory)
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
    """Check a report, the files next to it, and its gates.

    Args:
        report: Path of report.json, or a report if `report_only` is set.
        config: File of settings that has the gates.
        report_only: Check the report without its files.
        data: Data to measure the accuracy again. The gates check the measured values.
        task: Custom task to measure the accuracy again.
        against: Path of the original, if it is not where the report says.
        progress: Reporter of notes.
        limits: Limits of gates by name. Without limits here and in `config`, those of the run
            are checked.

    Returns:
        A result for each gate and for each file.

    Raises:
        InputError: The report contradicts itself or its files, or a limit is invalid.
    """
    content = report if isinstance(report, Report) else read_report(report)
    passed_limits = load_settings(None, config, options={"gates": limits}).gates
    gates = choose_limits(passed_limits, content.settings.get("gates", {}))
    check_metric_limits(content.metric, gates)
    measures_again = any(source is not None for source in (data, task, against))
    if report_only:
        if measures_again:
            raise InputError(
                "report_only reads no files, so nothing can be measured",
                "remove report_only, or data, task and against",
            )
        return evaluate_gates(drop_unsupported_values(content), gates)
    if isinstance(report, Report):
        raise InputError(
            "a report in memory has no files next to it",
            "pass the path of its report.json, or report_only=True",
        )
    path = Path(report)
    say = (progress or SilentReporter()).say
    file_results = check_files(content, path)
    content = drop_unsupported_values(content)
    if all(result.passed for result in file_results):
        from ltp_pipeline.gates.recount import check_counts

        check_counts(content, path.parent)
        if measures_again:
            from ltp_pipeline.stages.measure.again import measure_again

            content, notes = measure_again(content, path.parent, data, _load_task(task), against)
            for note in notes:
                say(f"note: {note}")
    elif measures_again:
        say("note: nothing was measured, because the files are not those of the report")
    return [*evaluate_gates(content, gates), *file_results]


def compare(
    old: AnyPath | Report,
    new: AnyPath | Report,
    *,
    max_drop: float | None = None,
    max_compression_loss: float | None = None,
    max_size_increase: float | None = None,
    allow_different_models: bool = False,
) -> comparison.Comparison:
    """Compare the reports of two runs of the same model.

    Args:
        old: Report of the first run, or its path.
        new: Report of the second run, or its path.
        max_drop: Largest drop of the metric, in its unit.
        max_compression_loss: Largest decrease of the compression, as a fraction.
        max_size_increase: Largest growth of the smallest file, as a fraction.
        allow_different_models: Compare even if the original models differ.

    Returns:
        What changed, the results of the limits, and notes.
    """
    return comparison.compare_reports(
        old if isinstance(old, Report) else read_report(old),
        new if isinstance(new, Report) else read_report(new),
        max_drop,
        max_compression_loss,
        max_size_increase,
        allow_different_models,
    )


def _load_task(task: Any) -> CustomTask | None:
    """Return the custom task of an argument `task`."""
    if task is None:
        return None
    from ltp_pipeline.tasks.custom import CustomTask

    return CustomTask.load(task)


def _check_task(model: AnyPath, task: CustomTask | None) -> None:
    """Raise InputError if a file lies in a run with another custom task."""
    directory = RunDirectory(Path(model).parent)
    if task is not None and directory.has_custom_task:
        from ltp_pipeline.stages.prepare import check_same_task

        check_same_task(directory, task)


def _load_file_settings(
    model: AnyPath, data: AnyPath | None, config: AnyPath | None, task: CustomTask | None
) -> Settings:
    """Load the settings of a file that exists: those of ltp.toml, or else those of its run."""
    _check_task(model, task)
    settings = load_settings(model, config, options={"data": {"path": data}})
    directory = RunDirectory(Path(model).parent)
    has_settings_file = config is not None or directory.path(SETTINGS_FILE).is_file()
    if has_settings_file or not directory.is_run:
        return settings
    if task is None and data is None and directory.has_custom_task:
        raise InputError(f"the run in {directory.root} has a custom task", CUSTOM_TASK_HINT)
    _, run_settings = directory.load_inputs()
    path = settings.data.path
    if path is None and task is None:
        path = run_settings.data.path
    data_settings = run_settings.data.model_copy(update={"path": path})
    return run_settings.model_copy(update={"data": data_settings})
