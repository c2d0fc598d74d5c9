"""Lay out .static/ltp_pipeline so that mypy sees the package.

mypy cannot follow the import hook of an editable install whose package is mapped from three
folders. A tree of links, ignored by git, shows it the same layout that the wheel has.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / ".static" / "ltp_pipeline"


def main() -> None:
    """Replace all links."""
    PACKAGE.mkdir(parents=True, exist_ok=True)
    for link in PACKAGE.iterdir():
        link.unlink()
    sources = [p for p in (ROOT / "pipeline").iterdir() if p.name != "__pycache__"]
    for source in [*sources, ROOT / "stages", ROOT / "exporters"]:
        (PACKAGE / source.name).symlink_to(source)


if __name__ == "__main__":
    main()
