"""The handoff folder: the files, their report and hashes, and a page for people who know nothing of the training."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ltp_pipeline.data.dataset import Samples
from ltp_pipeline.errors import InputError
from ltp_pipeline.results import read_write
from ltp_pipeline.results.schema import Report
from ltp_pipeline.run_directory import names
from ltp_pipeline.run_directory.names import BASELINE, REPORT_HTML, REPORT_JSON, SUMS
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import DataSettings, InputSettings, Section, TaskSettings
from ltp_pipeline.settings.write import format_toml
from ltp_pipeline.stages.handoff import example, of_baseline, sparse_ops, text
from ltp_pipeline.stages.report.render import render_html
from ltp_pipeline.system.files import copy_file, json_text, write_bytes
from ltp_pipeline.system.hashing import sha256_file, write_checksums

FOLDER, FOLDER_OF_BASELINE = names.HANDOFF, names.HANDOFF_OF_BASELINE
README, SETTINGS = names.HANDOFF_README, names.HANDOFF_SETTINGS
PREPROCESS, PREPROCESS_JSON = names.HANDOFF_PREPROCESS, names.HANDOFF_PREPROCESS_JSON
EXAMPLE, VERIFY = names.HANDOFF_EXAMPLE, names.HANDOFF_VERIFY
SCRIPTS = Path(__file__).parent  # preprocess.py and verify.py are copied from here as they are
# Settings of data that decide which samples are measured and how these become inputs.
DATA_KEYS = (*InputSettings.model_fields, "crop", "validation_fraction", "classes")


def run(
    report: Report, source: Path, out: Path, samples: Mapping[str, Samples] | None = None
) -> Path:
    """Fill `out` from the run directory `source`; a folder that holds anything else is left alone.

    The example has the stored `samples` that are given, by input; without any it has generated ones.
    """
    if not (source / REPORT_HTML).is_file():
        raise InputError(
            f"{source / REPORT_HTML} is missing",
            "start the same run again; it writes what is missing",
        )
    copied = {
        **_models(report, source),
        **{name: source / name for name in (REPORT_JSON, REPORT_HTML)},
    }
    return _fill(out, report, copied, {}, samples)


def run_of_baseline(
    report: Report, source: Path, out: Path, samples: Mapping[str, Samples] | None = None
) -> Path:
    """The same with the run's baseline, and a report in which that is the pruned network."""
    workspace = RunDirectory(source)
    if workspace.is_run:
        workspace.load_inputs()
    report = of_baseline.as_pruned(report, picked=workspace.entry is not None)
    log = [line for line in workspace.read_log() if line.get("stage") == BASELINE]
    pages = {
        REPORT_JSON: json_text(read_write.plain(report)),
        REPORT_HTML: render_html(report, log),
    }
    return _fill(out, report, _models(report, source / BASELINE), pages, samples)


def _fill(
    out: Path,
    report: Report,
    copied: Mapping[str, Path],
    pages: Mapping[str, str],
    samples: Mapping[str, Samples] | None,
) -> Path:
    """Write files that are copied, pages that are given, and what is made for every handoff."""
    _refuse_foreign(out)
    handed = sparse_ops.find(report)
    if handed is not None and handed.path is not None:
        copied = {**copied, handed.path.name: handed.path}
    made = _made(
        report, [path for path in copied.values() if path.suffix == ".onnx"], samples, handed
    )
    made |= {name: page.encode() for name, page in pages.items()}
    stale = _listed_in(out) - {*copied, *made}
    write_bytes(
        out / README, made[README]
    )  # first: it marks the folder as ours, should we be stopped
    for name in (*stale, SUMS):
        (out / name).unlink(missing_ok=True)
    for name, content in made.items():
        write_bytes(out / name, content)
    for name, path in copied.items():
        copy_file(path, out / name)
    write_checksums(out / SUMS, {name: sha256_file(out / name) for name in (*copied, *made)})
    return out


def _made(
    report: Report,
    models: Sequence[Path],
    samples: Mapping[str, Samples] | None,
    handed: sparse_ops.Kernels | None,
) -> dict[str, bytes]:
    """What is written for this handoff, by name."""
    inputs = example.read_inputs(report)
    library = handed.path.name if handed and handed.path else None
    libraries = {file.path: library for file in sparse_ops.fast_files(report) if library}
    shown = example.make_example(inputs, models, samples, libraries)
    pages = {
        SETTINGS: format_settings(
            report.settings, "--data" if report.custom_task is None else "--task"
        ),
        README: text.render(report, shown.tolerance, shown.num_real_samples, handed),
        PREPROCESS_JSON: format_preprocessing(inputs),
        **{name: (SCRIPTS / name).read_text(encoding="utf-8") for name in (PREPROCESS, VERIFY)},
    }
    sources = {} if handed is None else {sparse_ops.SOURCES: handed.sources}
    return {
        EXAMPLE: shown.content,
        **{name: page.encode() for name, page in pages.items()},
        **sources,
    }


def format_settings(settings: Mapping[str, Mapping[str, Any]], data_option: str) -> str:
    """Return the ltp.toml with which `ltp-pipeline validate` repeats the measurement.

    Args:
        settings: Settings of the run by section, as report.json holds them.
        data_option: Option by which a user passes the data, which are not part of the handoff.
    """
    data, train = settings.get("data", {}), settings.get("train", {})
    sections = {
        "data": _changed_settings(data, DATA_KEYS, DataSettings),
        "task": _changed_settings(
            settings.get("task", {}), TaskSettings.model_fields, TaskSettings
        ),
        "train": {
            "seed": train.get("seed") or 0,
            "distill_outputs_as": train.get("distill_outputs_as"),
        },
    }
    sections["data"]["inputs"] = {
        name: {key: own[key] for key in InputSettings.model_fields if key in own}
        for name, own in data.get("inputs", {}).items()
    }
    comment = "# How samples become the model's inputs. Pass the data themselves with"
    filled = {name: section for name, section in sections.items() if section}
    return f"{comment} {data_option}.\n{format_toml(filled)}"


def format_preprocessing(inputs: example.ModelInputs) -> str:
    """Return preprocess.json: how preprocess.py makes each input of the model, by its name."""
    steps = {}
    for tensor in inputs.tensors:
        recipe = inputs.recipes[tensor.name]
        steps[tensor.name] = {**recipe.plain(), "input_type": inputs.name_dtype(tensor)}
    return json_text(steps)


def _changed_settings(
    values: Mapping[str, Any], keys: Iterable[str], section: type[Section]
) -> dict[str, Any]:
    """Return the settings under these keys that are set and differ from their defaults."""
    return {
        key: values[key]
        for key in keys
        if values.get(key) not in (None, [], section.model_fields[key].default)
    }


def _models(report: Report, source: Path) -> dict[str, Path]:
    """The exported files in a folder, which must still be those of the report, and data that belong to them."""
    sums = {name: digest for file in report.pruned.files for name, digest in file.hashes.items()}
    for path in (source / name for name in sums):
        if path.parent != source or not path.is_file():
            raise InputError(
                f"{path} is missing", "start the same run again; it writes what is missing"
            )
    for name, digest in sums.items():
        if sha256_file(source / name) != digest:
            again = "export it again: ltp-pipeline export"
            raise InputError(f"{source / name} is not the file the report speaks of", again)
    return {name: source / name for name in sums}


def _refuse_foreign(out: Path) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"{out} is no folder", "give an empty or new folder with --out")
    page = out / README
    ours = page.is_file() and page.read_bytes().startswith(text.MARK.encode())
    if not ours and any(out.iterdir()):
        raise InputError(
            f"{out} is not empty and holds no handoff", "give an empty or new folder with --out"
        )


def _listed_in(folder: Path) -> set[str]:
    """Files of an earlier handoff; only names in the folder itself, whatever the list says."""
    sums = folder / SUMS
    if not sums.is_file():
        return set()
    lines = sums.read_text(encoding="utf-8", errors="replace").splitlines()
    names = {line[66:] for line in lines if len(line) > 66}
    return {name for name in names if Path(name).name == name and (folder / name).is_file()}
