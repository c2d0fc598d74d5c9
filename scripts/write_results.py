"""Write docs/results.md, its figures and docs/study.md from the files in benchmarks/results."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # benchmarks is not an installed package

from benchmarks import results_page  # noqa: E402
from benchmarks.study import page as study_page  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "results.md"
STUDY = ROOT / "docs" / "study.md"


def main() -> None:
    """Write the pages and the figures, and remove figures without rows."""
    results = results_page.load_results(RESULTS)
    figures = results_page.make_figures(results)
    for path in RESULTS.glob("*.svg"):
        if path.stem not in figures:
            path.unlink()
    for name, figure in figures.items():
        (RESULTS / f"{name}.svg").write_bytes(figure.render())
    PAGE.write_text(results_page.render_page(results), encoding="utf-8")
    STUDY.write_text(study_page.render_page(study_page.load_rows()), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}, {len(figures)} figures and {STUDY.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
