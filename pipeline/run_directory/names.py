"""Every name that a run writes into its directory. No other module knows these names.

A file can be removed with its run if and only if its name matches a pattern of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.file_names import FILE_PATTERNS
from ltp_pipeline.system.files import DATA_SUFFIX, SCRATCH_SUFFIX

MANIFEST = "manifest.json"
LOCK = ".lock"
LOG = "log.jsonl"
REPORT_JSON, REPORT_MD, REPORT_HTML = "report.json", "report.md", "report.html"
SUMS = "SHA256SUMS"
EVENTS = "tensorboard"
BASELINE, GRADUAL = "baseline", "gradual"  # folders of the baselines' files
LTP = "ltp"  # folder of the learned network's files if another network is delivered
STATE, WEIGHTS, TRAIL = "state", "weights", "trail"
TRAIL_INDEX = f"{TRAIL}/trail.json"
HANDOFF, HANDOFF_OF_BASELINE = "handoff", "handoff-baseline"
HANDOFF_OF_GRADUAL, HANDOFF_OF_LTP = "handoff-gradual", "handoff-ltp"
HANDOFF_README, HANDOFF_SETTINGS = "HANDOFF.md", "ltp.toml"
HANDOFF_PREPROCESS, HANDOFF_PREPROCESS_JSON = "preprocess.py", "preprocess.json"
HANDOFF_EXAMPLE, HANDOFF_VERIFY = "example.npz", "verify.py"

_MODELS = tuple(pattern + data for pattern in FILE_PATTERNS for data in ("", DATA_SUFFIX))
_NUMBER = "[0-9][0-9][0-9]"
_PICKED = f"pick-{_NUMBER}"  # each a run directory of its own
_POINTS = ("baseline", "baseline-[0-9]", "baseline-single")  # points of the baseline
_VARIANTS = ("", "-lamp", "-spared", "-lamp-spared")  # scores, and the classifier excluded
_VARIANT_POINTS = tuple(
    name.replace(BASELINE, BASELINE + variant) for name in _POINTS for variant in _VARIANTS
)
_GRADUAL_NETWORKS = tuple(GRADUAL + variant for variant in _VARIANTS)
_GRADUAL_TUNINGS = tuple(f"{name}-finetune" for name in _GRADUAL_NETWORKS)
_QAT_NETWORKS = tuple(f"{name}-int8-*" for name in ("pruned", *_POINTS, GRADUAL, LTP))
_BASELINES = (*(name.replace("-", "/", 1) for name in _POINTS), GRADUAL, LTP)
_OTHER_NETWORKS = (*_VARIANT_POINTS, *_GRADUAL_NETWORKS, *_QAT_NETWORKS)
_HANDED = (
    HANDOFF_README,
    HANDOFF_SETTINGS,
    HANDOFF_PREPROCESS,
    HANDOFF_PREPROCESS_JSON,
    HANDOFF_EXAMPLE,
    HANDOFF_VERIFY,
    REPORT_JSON,
    REPORT_HTML,
    SUMS,
    *_MODELS,
)
# Shell-style patterns of file names, by folder.
_FILES = {
    "": (MANIFEST, LOG, REPORT_JSON, REPORT_MD, REPORT_HTML, SUMS, *_MODELS),
    STATE: tuple(
        f"{name}.safetensors"
        for name in ("learn", f"finetune-{_NUMBER}", *_OTHER_NETWORKS, *_GRADUAL_TUNINGS)
    ),
    WEIGHTS: tuple(f"{name}.safetensors" for name in ("pruned", *_OTHER_NETWORKS)),
    TRAIL: ("trail.json", f"{_NUMBER}.onnx", f"{_NUMBER}.onnx{DATA_SUFFIX}"),
    **dict.fromkeys(_BASELINES, _MODELS),
    HANDOFF: _HANDED,
    HANDOFF_OF_BASELINE: _HANDED,
    HANDOFF_OF_GRADUAL: _HANDED,
    HANDOFF_OF_LTP: _HANDED,
    f"{EVENTS}/*": ("events.out.tfevents.*",),
}


def tensor_file_name(kind: str, name: str) -> str:
    """Return the name of a file with tensors, such as `state/learn.safetensors`."""
    return f"{kind}/{name}.safetensors"


def trail_file_name(entry: int) -> str:
    """Return the name of the network of a trail entry."""
    return f"{TRAIL}/{entry:03d}.onnx"


def picked_directory_name(entry: int) -> str:
    """Return the name of the folder in which another trail entry is finished."""
    return f"pick-{entry:03d}"


def point_folder(point: int | str) -> str:
    """Return the folder with the files of a point of the baseline.

    Args:
        point: Number of the point, counted from 1, or its name.
    """
    if point == GRADUAL:
        return GRADUAL
    return BASELINE if point == 1 else f"{BASELINE}/{point}"


def list_models(root: Path) -> list[Path]:
    """Return the exported models of a run and of its baseline, with their external data."""
    folders = [place for pattern in ("", *_BASELINES) for place in _match_folders(root, pattern)]
    return [file for folder in folders for file in _match_files(folder, _MODELS)]


def remove_run(root: Path) -> None:
    """Remove the files that a run wrote, and folders that are empty afterwards.

    Other files stay. The manifest goes last, so that an interrupted removal can be repeated.
    """
    remove_leftovers(root)
    files = sorted(_iter_written_files(root), key=lambda file: file == root / MANIFEST)
    _remove_files(files)
    folders = {parent for file in files for parent in file.parents if root in parent.parents}
    for folder in sorted(folders, reverse=True):
        with suppress(OSError):  # it holds something else
            folder.rmdir()


def remove_leftovers(root: Path) -> None:
    """Remove temporary files that a killed process left behind."""
    _remove_files(list(_iter_written_files(root, lambda pattern: f".{pattern}.{SCRATCH_SUFFIX}")))


def _iter_written_files(root: Path, name: Callable[[str], str] = str) -> Iterator[Path]:
    """Yield the files of a run, by patterns that `name` makes of those of its files.

    Folders that are links are not followed.
    """
    for folder, patterns in _FILES.items():
        for place in _match_folders(root, folder):
            yield from _match_files(place, tuple(map(name, patterns)))
    for picked in _match_folders(root, _PICKED):
        yield from _iter_written_files(picked, name)


def _match_files(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    entries = [e for e in sorted(folder.iterdir()) if any(fnmatchcase(e.name, p) for p in patterns)]
    return [entry for entry in entries if entry.is_symlink() or not entry.is_dir()]


def _match_folders(root: Path, pattern: str) -> list[Path]:
    places = [root]
    for part in PurePosixPath(pattern).parts:
        inner = [
            entry
            for place in places
            for entry in sorted(place.iterdir())
            if fnmatchcase(entry.name, part)
        ]
        places = [entry for entry in inner if entry.is_dir() and not entry.is_symlink()]
    return places


def _remove_files(files: list[Path]) -> None:
    for file in files:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            remedy = "check the permissions of its folder, or pass another --out"
            raise InputError(f"cannot remove {file}: {error.strerror}", remedy) from None
