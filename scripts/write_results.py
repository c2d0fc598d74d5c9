"""Write docs/results.md and its figures from the files in benchmarks/results, and from nothing else."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # benchmarks is no installed package

from benchmarks import results_page  # noqa: E402

RESULTS, DOCS = ROOT / "benchmarks" / "results", ROOT / "docs"


def main() -> None:
    results = results_page.read(RESULTS)
    figures = results_page.drawings(results)
    for old in RESULTS.glob("*.svg"):
        if old.stem not in figures:
            old.unlink()
    for name, drawing in figures.items():
        (RESULTS / f"{name}.svg").write_bytes(drawing.render())
    (DOCS / "results.md").write_text(results_page.page(results), encoding="utf-8")
    print(f"wrote docs/results.md and {len(figures)} figures")


if __name__ == "__main__":
    main()
