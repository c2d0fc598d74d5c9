"""The folder of a finished run, with small files that stand for its models."""

from pathlib import Path
from typing import Any

from ltp_pipeline.files import write_json
from ltp_pipeline.hashing import sha256_of
from tests.support.sample_report import sample


def lay_out(folder: Path) -> dict[str, Any]:
    """Write report.json and every file it names: one of those to ship, the original too, has its data beside it."""
    report, _ = sample()
    sparse, packed = report["pruned"]["files"]
    for file in (sparse, packed, *report["baseline"]["files"]):
        file["sha256"] = _written(folder / file["path"])
    sparse["data_sha256"] = _written(folder / f"{sparse['path']}.data")
    for entry in report["trail"]:
        entry["sha256"] = _written(folder / entry["file"])
    report["model"]["sha256"] = _written(folder / report["model"]["path"])
    write_json(folder / "report.json", report)
    return report


def _written(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"what stands for {path.name}", encoding="utf-8")
    return sha256_of(path)
