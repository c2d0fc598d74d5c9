"""The public verbs; the command line is a thin coat over them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ltp_pipeline.config import CONFIG_NAME, DataSettings, Imitate, Settings, completed, load_settings
from ltp_pipeline.errors import InputError
from ltp_pipeline.files import AnyPath
from ltp_pipeline.gate_files import check_files
from ltp_pipeline.gates import Verdict, gate_settings, judge, or_own, read_report
from ltp_pipeline.progress import Reporter, SilentReporter
from ltp_pipeline.results import Measurement
from ltp_pipeline.runner import Outcome
from ltp_pipeline.runner import run as run_stages
from ltp_pipeline.stages.import_model import import_model
from ltp_pipeline.stages.inspect import inspect
from ltp_pipeline.stages.validate import PROVIDER
from ltp_pipeline.stages.validate import validate as measure
from ltp_pipeline.workspace import Workspace

__all__ = ["gate", "import_model", "inspect", "run", "validate"]


def run(
    model: AnyPath,
    /,  # `model` is a section of the settings too
    settings: Settings | None = None,
    *,
    out: AnyPath | None = None,
    fresh: bool = False,
    progress: Reporter | None = None,
    **options: Mapping[str, Any],
) -> Outcome:
    """Prune a model; settings as given, or from ltp.toml beside it with `options` on top (`train={"epochs": 3}`)."""
    model = Path(model)
    if settings is not None and options:
        raise InputError("both settings and options are given", "put the options into the settings")
    settings = load_settings(model, options=options) if settings is None else completed(settings)
    folder = Path(out) if out is not None else default_out(model)
    return run_stages(model, settings, folder, progress or SilentReporter(), fresh)


def validate(
    model: AnyPath,
    data: DataSettings | AnyPath | None = None,
    *,
    config: AnyPath | None = None,
    against: AnyPath | None = None,
    seed: int | None = None,
    provider: str = PROVIDER,
    imitate: Imitate | None = None,
) -> Measurement:
    """Measure a file in onnxruntime on the test split, and beside another one if given.

    What is not said comes from ltp.toml beside the model or at `config`; for a file in its run, from that run.
    """
    if isinstance(data, DataSettings):
        return measure(model, data, against=against, seed=seed or 0, provider=provider, imitate=imitate or "auto")
    settings = load_settings(model, config, options={"data": {"path": data}})
    run = Workspace(Path(model).parent)
    if config is None and not run.path(CONFIG_NAME).is_file() and run.is_run:
        _, of_run = run.inputs()  # a file in its own run: prepared as it was there
        path = settings.data.path or of_run.data.path
        settings = of_run.model_copy(update={"data": of_run.data.model_copy(update={"path": path})})
    return measure(
        model,
        settings.data,
        against=against,
        seed=settings.train.seed if seed is None else seed,
        provider=provider,
        imitate=imitate or settings.train.imitate,
    )


def default_out(model: Path) -> Path:
    """Run directory when none is given: `<model>-ltp` in the working directory."""
    return Path(f"{model.stem}-ltp")


def gate(report: AnyPath | Mapping[str, Any], *, report_only: bool = False, **limits: Any) -> list[Verdict]:
    """Judge the report.json at a path and the files beside it, or with `report_only` the numbers of a report alone.

    Without limits, those that the run itself was judged by hold.
    """
    gates = gate_settings(limits)
    if isinstance(report, Mapping):
        if not report_only:
            what = "a report in memory has no files beside it to be judged with it"
            raise InputError(what, "give the path of its report.json, or report_only=True")
        return judge(report, or_own(report, gates))
    path = Path(report)
    content = read_report(path)
    files = [] if report_only else check_files(content, path.parent)
    return [*judge(content, or_own(content, gates)), *files]
