"""Fill the handoff folder: the files of a network with everything that is needed to deploy them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.results import read_write
from ltp_pipeline.run_directory import names
from ltp_pipeline.run_directory.names import BASELINE, REPORT_HTML, REPORT_JSON, SUMS
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import InputSettings, Settings, TaskSettings
from ltp_pipeline.settings.write import format_toml
from ltp_pipeline.stages.handoff.example import ModelInputs, make_example, read_inputs
from ltp_pipeline.stages.handoff.page import MARKER, render_page
from ltp_pipeline.stages.handoff.sparse_ops import ARCHIVE, collect_sparse_ops, find_fast_files
from ltp_pipeline.stages.report.render import render_html
from ltp_pipeline.system.files import copy_file, json_text, write_bytes
from ltp_pipeline.system.hashing import sha256_file, write_checksums

if TYPE_CHECKING:
    from ltp_pipeline.data.dataset import Samples
    from ltp_pipeline.results.schema import Report

FOLDER = names.HANDOFF
# Folders in the run directory, by key of the network: that of its handoff, and that of its files.
HANDOFF_FOLDERS = {
    "pruned": FOLDER,
    "baseline": names.HANDOFF_OF_BASELINE,
    "gradual_baseline": names.HANDOFF_OF_GRADUAL,
    "ltp": names.HANDOFF_OF_LTP,
}
FILE_FOLDERS = {"baseline": BASELINE, "gradual_baseline": names.GRADUAL, "ltp": names.LTP}
# Stages of training in the log, by key of the network.
LOGGED_STAGES = {
    "baseline": (BASELINE,),
    "gradual_baseline": (names.GRADUAL, f"{names.GRADUAL}-finetune"),
    "ltp": ("learn", "finetune"),
}
SCRIPTS = (names.HANDOFF_PREPROCESS, names.HANDOFF_VERIFY)  # copied from this package as they are
MISSING_HINT = "start the same run again; it writes missing files"
FOLDER_HINT = "pass an empty or new folder with --out"
# Settings that decide which samples are measured and how they become inputs, by section.
REPEATED_SETTINGS = {
    "data": (*InputSettings.model_fields, "crop", "validation_fraction", "classes"),
    "task": tuple(TaskSettings.model_fields),
    "train": ("distill_outputs_as",),
}


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
        raise InputError(f"{source / REPORT_HTML} is missing", MISSING_HINT)
    copied = _check_models(report, source)
    copied |= {name: source / name for name in (REPORT_JSON, REPORT_HTML)}
    return _fill_folder(out, report, copied, {}, samples)


def run_other(
    report: Report,
    key: str,
    source: Path,
    out: Path,
    samples: Mapping[str, Samples] | None = None,
) -> Path:
    """Fill a handoff folder with a network of a run that is not its pruned network.

    The arguments are those of `run`, with the report of `select_network` and the key of the
    network.
    """
    stages = LOGGED_STAGES[key]
    log = [line for line in RunDirectory(source).read_log() if line.get("stage") in stages]
    pages = {
        REPORT_JSON: json_text(read_write.to_json(report)),
        REPORT_HTML: render_html(report, log),
    }
    copied = _check_models(report, source / FILE_FOLDERS[key])
    return _fill_folder(out, report, copied, pages, samples)


def _fill_folder(
    out: Path,
    report: Report,
    copied: dict[str, Path],
    pages: Mapping[str, str],
    samples: Mapping[str, Samples] | None,
) -> Path:
    """Write a handoff and remove the files of an earlier one.

    `copied` are files and `pages` are texts by their names in the folder.
    """
    _check_folder(out)
    models = [path for path in copied.values() if path.suffix == ".onnx"]
    sparse_ops = collect_sparse_ops(report)
    libraries = {}
    if sparse_ops is not None and sparse_ops.library is not None:
        copied[sparse_ops.library_name] = sparse_ops.library
        for file in find_fast_files(report):
            libraries[file.path] = sparse_ops.library_name
    inputs = read_inputs(report)
    example = make_example(inputs, models, samples, libraries)
    page = render_page(report, example.tolerance, example.num_real_samples, sparse_ops)
    data_option = "--task"
    if report.custom_task is None:
        data_option = "--data"
    contents = {
        names.HANDOFF_EXAMPLE: example.content,
        names.HANDOFF_README: page.encode(),
        names.HANDOFF_SETTINGS: format_settings(report.settings, data_option).encode(),
        names.HANDOFF_PREPROCESS_JSON: format_preprocessing(inputs).encode(),
    }
    for name in SCRIPTS:
        contents[name] = (Path(__file__).parent / name).read_bytes()
    if sparse_ops is not None:
        contents[ARCHIVE] = sparse_ops.sources
    for name, text in pages.items():
        contents[name] = text.encode()
    # The page comes first: if writing is interrupted, it marks the folder as a handoff.
    write_bytes(out / names.HANDOFF_README, contents[names.HANDOFF_README])
    new_names = [*copied, *contents]
    for name in (*_list_earlier_files(out), SUMS):
        if name not in new_names:
            (out / name).unlink(missing_ok=True)
    for name, content in contents.items():
        write_bytes(out / name, content)
    for name, path in copied.items():
        copy_file(path, out / name)
    write_checksums(out / SUMS, {name: sha256_file(out / name) for name in new_names})
    return out


def format_settings(settings: Mapping[str, Mapping[str, Any]], data_option: str) -> str:
    """Return the ltp.toml with which `ltp-pipeline validate` repeats the measurement.

    Args:
        settings: Settings of the run by section, as report.json holds them.
        data_option: Option by which a user passes the data, which are not part of the handoff.
    """
    defaults = Settings().model_dump(mode="json")
    sections: dict[str, dict[str, Any]] = {}
    for name, keys in REPEATED_SETTINGS.items():
        values = settings.get(name, {})
        sections[name] = {}
        for key in keys:
            value = values.get(key)
            if value not in (None, [], defaults[name][key]):
                sections[name][key] = value
    sections["train"]["seed"] = settings.get("train", {}).get("seed") or 0
    for name, values in settings.get("data", {}).get("inputs", {}).items():
        own = {key: values[key] for key in InputSettings.model_fields if key in values}
        sections["data"].setdefault("inputs", {})[name] = own
    comment = "# How samples become the model's inputs. Pass the data themselves with"
    filled = {name: values for name, values in sections.items() if values}
    return f"{comment} {data_option}.\n{format_toml(filled)}"


def format_preprocessing(inputs: ModelInputs) -> str:
    """Return preprocess.json: how preprocess.py makes each input of the model, by its name."""
    steps = {}
    for tensor in inputs.tensors:
        recipe = inputs.recipes[tensor.name].model_dump(mode="json")
        steps[tensor.name] = {**recipe, "input_type": inputs.name_dtype(tensor)}
    return json_text(steps)


def _check_models(report: Report, source: Path) -> dict[str, Path]:
    """Return the model files of a report and their data by name, if they are unchanged.

    Raises:
        InputError: If a file is missing or its hash is not that of the report.
    """
    paths = {}
    for file in report.pruned.files:
        for name, digest in file.hashes.items():
            path = source / name
            if path.parent != source or not path.is_file():
                raise InputError(f"{path} is missing", MISSING_HINT)
            if sha256_file(path) != digest:
                raise InputError(
                    f"{path} has changed since the report was written",
                    "export it again: ltp-pipeline export",
                )
            paths[name] = path
    return paths


def _check_folder(out: Path) -> None:
    """Raise InputError if a path exists and is neither an empty folder nor a handoff."""
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"{out} is not a folder", FOLDER_HINT)
    page = out / names.HANDOFF_README
    is_handoff = page.is_file() and page.read_bytes().startswith(MARKER.encode())
    if not is_handoff and any(out.iterdir()):
        raise InputError(f"{out} is neither empty nor a handoff", FOLDER_HINT)


def _list_earlier_files(folder: Path) -> set[str]:
    """Return the files of an earlier handoff; names outside the folder are ignored."""
    sums = folder / SUMS
    if not sums.is_file():
        return set()
    lines = sums.read_text(encoding="utf-8", errors="replace").splitlines()
    listed = {line[66:] for line in lines if len(line) > 66}
    names_inside = set()
    for name in listed:
        if Path(name).name == name and (folder / name).is_file():
            names_inside.add(name)
    return names_inside
