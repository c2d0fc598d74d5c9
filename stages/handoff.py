"""The handoff folder: the files, their report and hashes, and a page for people who know nothing of the training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.files import copy, hashes, sha256_of, write_text
from ltp_pipeline.stages import handoff_text
from ltp_pipeline.stages.report.text import get
from ltp_pipeline.workspace import REPORT_HTML, REPORT_JSON, SUMS

FOLDER = "handoff"
README = "HANDOFF.md"
SETTINGS = "ltp.toml"


def run(report: Mapping[str, Any], source: Path, out: Path) -> Path:
    """Fill `out` from the run directory `source`; a folder that holds anything else is left alone."""
    models = _models(report, source)
    _refuse_foreign(out)
    stale = _listed_in(out) - {*models, REPORT_JSON, REPORT_HTML, SETTINGS, README}
    write_text(out / README, handoff_text.render(report))  # first: it marks the folder as ours, should we be stopped
    for name in (*stale, SUMS):
        (out / name).unlink(missing_ok=True)
    write_text(out / SETTINGS, handoff_text.settings_toml(report))
    for name in (*models, REPORT_JSON, REPORT_HTML):
        copy(source / name, out / name)
    names = [*models, REPORT_JSON, REPORT_HTML, SETTINGS, README]
    write_text(out / SUMS, "".join(f"{sha256_of(out / name)}  {name}\n" for name in names))
    return out


def _models(report: Mapping[str, Any], source: Path) -> list[str]:
    """The exported files of a run, which must still be those of the report, and data that belong to them."""
    files = get(report, "pruned", "files") or []
    sums = {name: digest for file in files for name, digest in hashes(file).items()}
    for path in (source / name for name in (REPORT_HTML, *sums)):
        if path.parent != source or not path.is_file():
            raise InputError(f"{path} is missing", "start the same run again; it writes what is missing")
    for name, digest in sums.items():
        if sha256_of(source / name) != digest:
            again = "export it again: ltp-pipeline export"
            raise InputError(f"{source / name} is not the file the report speaks of", again)
    return list(sums)


def _refuse_foreign(out: Path) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"{out} is no folder", "give an empty or new folder with --out")
    page = out / README
    ours = page.is_file() and page.read_bytes().startswith(handoff_text.MARK.encode())
    if not ours and any(out.iterdir()):
        raise InputError(f"{out} is not empty and holds no handoff", "give an empty or new folder with --out")


def _listed_in(folder: Path) -> set[str]:
    """Files of an earlier handoff; only names in the folder itself, whatever the list says."""
    sums = folder / SUMS
    if not sums.is_file():
        return set()
    lines = sums.read_text(encoding="utf-8", errors="replace").splitlines()
    names = {line[66:] for line in lines if len(line) > 66}
    return {name for name in names if Path(name).name == name and (folder / name).is_file()}
