"""docs/results.md and its figures show what the results files contain."""

import re
from typing import Any

import pytest

from benchmarks import results_page
from tests.support import ablation_rows
from tests.support.paths import ROOT

RESULTS = ROOT / "benchmarks" / "results"
PAPER = {"source": "p", "resnet20": "r", "rows": []}
ABOUT = {"command": "python -m benchmarks.ablations --out x", "versions": {"python": "3"}}


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return results_page.load_results(RESULTS)


@pytest.fixture(scope="module")
def ablations() -> dict[str, Any]:
    """Rows of all ablations, and nothing else but the paper's figures."""
    return {"paper": PAPER, "ablations": {**ABOUT, "rows": ablation_rows.every()}}


def headings(page: str, level: int) -> list[str]:
    return re.findall(rf"^{'#' * level} (.*)", page, re.MULTILINE)


def test_render_page_agrees_with_the_page_in_docs(results: dict[str, Any]) -> None:
    written = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert written == results_page.render_page(results), "run python scripts/write_results.py"


def test_make_figures_agrees_with_the_stored_figures(results: dict[str, Any]) -> None:
    figures = results_page.make_figures(results)
    assert {path.stem for path in RESULTS.glob("*.svg")} == set(figures)
    for name, figure in figures.items():
        assert f"rows {figure.digest}" in (RESULTS / f"{name}.svg").read_text(encoding="utf-8"), (
            name
        )


def test_results_of_a_file_have_one_commit(results: dict[str, Any]) -> None:
    for name, content in results.items():
        if "rows" not in content:  # ratios of one run
            continue
        commits = {row.get("commit") for row in content["rows"]}
        assert len(commits) == 1, f"{name}: measure all rows with one commit"
        assert "changed" not in str(commits), f"{name}: measured with code that was not committed"


@pytest.mark.parametrize("which", ["results", "ablations"])
def test_render_page_shows_each_figure_once(which: str, request: pytest.FixtureRequest) -> None:
    results = request.getfixturevalue(which)
    page = results_page.render_page(results)
    shown = re.findall(r"\(\.\./benchmarks/results/([\w-]+)\.svg\)", page)
    assert sorted(shown) == sorted(results_page.make_figures(results))


def test_make_figures_same_rows_give_the_same_bytes(ablations: dict[str, Any]) -> None:
    figure = results_page.make_figures(ablations)["budget-sensitivity"]
    assert figure.render() == figure.render()


@pytest.mark.slow
def test_make_figures_each_can_be_drawn(ablations: dict[str, Any]) -> None:
    for name, figure in results_page.make_figures(ablations).items():
        assert f"rows {figure.digest}" in figure.render().decode(), name


def test_render_page_each_ablation_has_a_section(ablations: dict[str, Any]) -> None:
    assert len(headings(results_page.render_page(ablations), 3)) == 6


def test_render_page_names_commit_and_processor(ablations: dict[str, Any]) -> None:
    page = results_page.render_page(ablations)
    assert "| `ablations.json` | `ablations` | abc | a processor |" in page


def test_render_page_missing_ablation_has_no_section(ablations: dict[str, Any]) -> None:
    rows = [row for row in ablations["ablations"]["rows"] if row["mode"] != "budget"]
    page = results_page.render_page({"paper": PAPER, "ablations": {**ABOUT, "rows": rows}})
    assert len(headings(page, 3)) == 5


def test_render_page_without_measurements_has_the_paper_only() -> None:
    page = results_page.render_page({"paper": PAPER})
    assert headings(page, 2) == ["The paper's figures, on ImageNet", "Commands and machines"]


def test_render_page_tables_have_as_many_cells_as_their_heads(results: dict[str, Any]) -> None:
    page = results_page.render_page(results)
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_render_page_every_series_with_rows_has_a_section() -> None:
    row = {"cell": "resnet", "compression": 10, "seed": 0, "original": 0.9, "val": 0.8}
    rules = [
        {**row, "distill": weight, "strength": strength}
        for weight in (0, 0.5)
        for strength in (None, 0.0, 1.0)
    ]
    restored = [
        {**row, "form": form, "lr": 0.03, "test": 0.8, "epochs": 8, "finetune_epochs": 4}
        for form in ("folded", "restored")
    ]
    results = {"choices": {**ABOUT, "rows": rules}, "restore_bn": {**ABOUT, "rows": restored}}
    page = results_page.render_page({"paper": PAPER, **results})
    assert "m = 1, half distilled" in page
    assert "| restored | 0.03 | 80.00 |" in page
    assert len(headings(page, 2)) == 4


def test_format_spread_uses_the_sample_standard_deviation() -> None:
    assert results_page.format_spread([78.0, 80.0]) == "79.0 ± 1.4"
    assert results_page.format_spread({0: 78.0}, 2) == "78.00"
    assert results_page.format_spread([]) == "–"


def test_format_extent_equal_values_are_written_once() -> None:
    assert results_page.format_extent([0.5, 0.25]) == "0.25–0.50"
    assert results_page.format_extent([0.5, 0.5]) == "0.50"
