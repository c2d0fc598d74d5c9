"""docs/results.md and its figures say what the results files say."""

import re

import pytest

from benchmarks import results_page
from tests.support import ablation_rows
from tests.support.paths import ROOT

FIGURES = ROOT / "benchmarks" / "results"
PAPER = {"source": "p", "resnet20": "r", "rows": []}
ABOUT = {"command": "c", "versions": {"python": "3"}}


@pytest.fixture(scope="module")
def results():
    return results_page.read(ROOT / "benchmarks" / "results")


@pytest.fixture(scope="module")
def made():
    """All ablations, and nothing else beside the paper."""
    return {"paper": PAPER, "ablations": {**ABOUT, "rows": ablation_rows.every()}}


def test_page_is_up_to_date(results):
    written = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert written == results_page.page(results), "run python scripts/write_results.py"


def test_figures_are_up_to_date(results):
    drawings = results_page.drawings(results)
    assert {path.stem for path in FIGURES.glob("*.svg")} == set(drawings)
    for name, drawing in drawings.items():
        assert f"rows {drawing.digest}" in (FIGURES / f"{name}.svg").read_text(encoding="utf-8"), (
            name
        )


def test_rows_of_a_file_are_of_one_commit_that_can_be_looked_up(results):
    for name, about in results.items():
        if "rows" not in about:  # ratios of one run
            continue
        commits = {row.get("commit") for row in about["rows"]}
        assert len(commits) == 1, f"{name}: measure all rows with one commit"
        assert "changed" not in str(commits), f"{name}: measured with code that was not committed"


@pytest.mark.parametrize("which", ["results", "made"])
def test_page_shows_every_figure_and_no_other(which, request):
    results = request.getfixturevalue(which)
    shown = re.findall(r"\(\.\./benchmarks/results/([\w-]+)\.svg\)", results_page.page(results))
    assert sorted(shown) == sorted(results_page.drawings(results))


def test_a_figure_is_the_same_bytes_every_time(made):
    drawing = results_page.drawings(made)["budget-sensitivity"]
    assert drawing.render() == drawing.render()


@pytest.mark.slow
def test_every_figure_can_be_drawn(made):
    for name, drawing in results_page.drawings(made).items():
        assert f"rows {drawing.digest}" in drawing.render().decode(), name


def test_every_ablation_has_a_section(made):
    page = results_page.page(made)
    assert [line for line in page.splitlines() if line.startswith("### ")] == [
        "### Regulariser: none, L2, soft L0",
        "### Gradient of the weights: (4), (10), and (20) clamped by (17)",
        "### Around the threshold, by the width of the sigmoid's transition",
        "### Error bars of the trail",
        "### Hyper-parameters, paper mode",
        "### What is left to set in budget mode",
    ]


def test_page_names_the_commit_and_the_processor(made):
    page = results_page.page(made)
    assert "all rows are of commit abc, on a processor" in page
    assert "| `ablations.json` | `c` | abc | a processor |" in page


def test_an_ablation_that_was_not_measured_is_left_out(made):
    rows = [row for row in made["ablations"]["rows"] if row["mode"] != "budget"]
    page = results_page.page({"paper": PAPER, "ablations": {**ABOUT, "rows": rows}})
    assert "Hyper-parameters, paper mode" in page
    assert "budget mode (" not in page
    assert "What is left to set" not in page


def test_what_was_not_measured_has_no_section():
    page = results_page.page({"paper": PAPER})
    assert [line for line in page.splitlines() if line.startswith("## ")] == [
        "## The paper's figures, on ImageNet",
        "## How it was measured",
    ]
