"""Fill the handoff folder: the files of a network with everything that is needed to deploy them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.results import read_write
from ltp_pipeline.run_directory import names
from ltp_pipeline.run_directory.names import BASELINE, REPORT_HTML, REPORT_JSON, SUMS
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import (
    DataSettings,
    InputSettings,
    Section,
    TaskSettings,
    TrainSettings,
)
from ltp_pipeline.settings.write import format_toml
from ltp_pipeline.stages.handoff import of_baseline
from ltp_pipeline.stages.handoff.example import ModelInputs, make_example, read_inputs
from ltp_pipeline.stages.handoff.page import MARKER, render_page
from ltp_pipeline.stages.handoff.sparse_ops import ARCHIVE, collect_sparse_ops, find_fast_files
from ltp_pipeline.stages.report.render import render_html
from ltp_pipeline.system.files import copy_file, json_text, write_bytes
from ltp_pipeline.system.hashing import sha256_file, write_checksums

if TYPE_CHECKING:
    from ltp_pipeline.data.dataset import Samples
    from ltp_pipeline.results.schema import Report

FOLDER, FOLDER_OF_BASELINE = names.HANDOFF, names.HANDOFF_OF_BASELINE
SCRIPTS = (names.HANDOFF_PREPROCESS, names.HANDOFF_VERIFY)  # copied from this package as they are
# Settings that decide which samples are measured and how they become inputs.
DATA_KEYS = (*InputSettings.model_fields, "crop", "validation_fraction", "classes")


def run(
    report: Report, source: Path, out: Path, samples: Mapping[str, Samples] | None = None
) -> Path:
    """Fill a handoff folder from a finished run.

    Args:
        report: Report of the run.
        source: Run directory.
        out: Folder to fill: a new one, an empty one, or an earlier handoff, which is replaced.
        samples: Stored samples by input for the example; None for generated ones.

    Returns:
        `out`.

    Raises:
        InputError: If files of the run are missing or changed, or `out` has other files.
    """
    if not (source / REPORT_HTML).is_file():
        raise InputError(
            f"{source / REPORT_HTML} is missing",
            "start the same run again; it writes missing files",
        )
    copied = _check_models(report, source)
    copied |= {name: source / name for name in (REPORT_JSON, REPORT_HTML)}
    return _fill_folder(out, report, copied, {}, samples)


def run_baseline(
    report: Report, source: Path, out: Path, samples: Mapping[str, Samples] | None = None
) -> Path:
    """Fill a handoff folder with the baseline of a run, with a report in which it is the result.

    The arguments are those of `run`.
    """
    run_directory = RunDirectory(source)
    if run_directory.is_run:
        run_directory.load_inputs()
    report = of_baseline.as_pruned(report, picked=run_directory.entry is not None)
    log = [line for line in run_directory.read_log() if line.get("stage") == BASELINE]
    pages = {
        REPORT_JSON: json_text(read_write.plain(report)),
        REPORT_HTML: render_html(report, log),
    }
    copied = _check_models(report, source / BASELINE)
    return _fill_folder(out, report, copied, pages, samples)


def _fill_folder(
    out: Path,
    report: Report,
    copied: Mapping[str, Path],
    pages: Mapping[str, str],
    samples: Mapping[str, Samples] | None,
) -> Path:
    """Write a handoff and remove the files of an earlier one.

    Args:
        out: Folder to fill.
        report: Report of the handoff.
        copied: Files to copy, by their names in the folder.
        pages: Texts to write, by their names in the folder.
        samples: Stored samples for the example; None for generated ones.
    """
    _check_folder(out)
    inputs = read_inputs(report)
    models = [path for path in copied.values() if path.suffix == ".onnx"]
    files = dict(copied)
    contents = {name: page.encode() for name, page in pages.items()}
    sparse_ops = collect_sparse_ops(report)
    libraries = {}
    if sparse_ops is not None:
        contents[ARCHIVE] = sparse_ops.sources
        if sparse_ops.library is not None:
            files[sparse_ops.library_name] = sparse_ops.library
            libraries = {file.path: sparse_ops.library_name for file in find_fast_files(report)}
    example = make_example(inputs, models, samples, libraries)
    page = render_page(report, example.tolerance, example.num_real_samples, sparse_ops)
    contents[names.HANDOFF_README] = page.encode()
    contents[names.HANDOFF_EXAMPLE] = example.content
    contents[names.HANDOFF_PREPROCESS_JSON] = format_preprocessing(inputs).encode()
    data_option = "--data" if report.custom_task is None else "--task"
    contents[names.HANDOFF_SETTINGS] = format_settings(report.settings, data_option).encode()
    for name in SCRIPTS:
        contents[name] = (Path(__file__).parent / name).read_bytes()
    outdated = _list_earlier_files(out) - {*files, *contents}
    # The page comes first: if writing is interrupted, it marks the folder as a handoff.
    write_bytes(out / names.HANDOFF_README, contents[names.HANDOFF_README])
    for name in (*outdated, SUMS):
        (out / name).unlink(missing_ok=True)
    for name, content in contents.items():
        write_bytes(out / name, content)
    for name, path in files.items():
        copy_file(path, out / name)
    write_checksums(out / SUMS, {name: sha256_file(out / name) for name in (*files, *contents)})
    return out


def format_settings(settings: Mapping[str, Mapping[str, Any]], data_option: str) -> str:
    """Return the ltp.toml with which `ltp-pipeline validate` repeats the measurement.

    Args:
        settings: Settings of the run by section, as report.json holds them.
        data_option: Option by which a user passes the data, which are not part of the handoff.
    """
    data, train = settings.get("data", {}), settings.get("train", {})
    sections = {
        "data": _select_changed(data, DATA_KEYS, DataSettings),
        "task": _select_changed(settings.get("task", {}), TaskSettings.model_fields, TaskSettings),
        "train": _select_changed(train, ("distill_outputs_as",), TrainSettings),
    }
    sections["train"]["seed"] = train.get("seed") or 0
    if data.get("inputs"):
        sections["data"]["inputs"] = {
            name: {key: own[key] for key in InputSettings.model_fields if key in own}
            for name, own in data["inputs"].items()
        }
    comment = "# How samples become the model's inputs. Pass the data themselves with"
    filled = {name: section for name, section in sections.items() if section}
    return f"{comment} {data_option}.\n{format_toml(filled)}"


def format_preprocessing(inputs: ModelInputs) -> str:
    """Return preprocess.json: how preprocess.py makes each input of the model, by its name."""
    steps = {}
    for tensor in inputs.tensors:
        recipe = inputs.recipes[tensor.name]
        steps[tensor.name] = {**recipe.plain(), "input_type": inputs.name_dtype(tensor)}
    return json_text(steps)


def _select_changed(
    values: Mapping[str, Any], keys: Iterable[str], section: type[Section]
) -> dict[str, Any]:
    """Return the settings under these keys that are set and differ from their defaults."""
    return {
        key: values[key]
        for key in keys
        if values.get(key) not in (None, [], section.model_fields[key].default)
    }


def _check_models(report: Report, source: Path) -> dict[str, Path]:
    """Return the model files of a report and their data by name, if they are unchanged.

    Raises:
        InputError: If a file is missing or its hash is not that of the report.
    """
    hashes = {name: digest for file in report.pruned.files for name, digest in file.hashes.items()}
    paths = {name: source / name for name in hashes}
    for path in paths.values():
        if path.parent != source or not path.is_file():
            raise InputError(
                f"{path} is missing", "start the same run again; it writes missing files"
            )
    for name, path in paths.items():
        if sha256_file(path) != hashes[name]:
            raise InputError(
                f"{path} has changed since the report was written",
                "export it again: ltp-pipeline export",
            )
    return paths


def _check_folder(out: Path) -> None:
    """Raise InputError if a path exists and is neither an empty folder nor a handoff."""
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"{out} is not a folder", "pass an empty or new folder with --out")
    page = out / names.HANDOFF_README
    is_handoff = page.is_file() and page.read_bytes().startswith(MARKER.encode())
    if not is_handoff and any(out.iterdir()):
        raise InputError(
            f"{out} is neither empty nor a handoff", "pass an empty or new folder with --out"
        )


def _list_earlier_files(folder: Path) -> set[str]:
    """Return the files of an earlier handoff; names in SHA256SUMS outside the folder are ignored."""
    sums = folder / SUMS
    if not sums.is_file():
        return set()
    lines = sums.read_text(encoding="utf-8", errors="replace").splitlines()
    listed = {line[66:] for line in lines if len(line) > 66}
    return {name for name in listed if Path(name).name == name and (folder / name).is_file()}
