"""docs/results.md and its figures say what the results files say."""

import json
import re

import numpy as np
import pytest
from torch import tensor

from benchmarks import findings, results_page, tables
from benchmarks import rows as rows_of
from benchmarks.ablations import plans
from benchmarks.ablations.runs import BINS, closely, looked_at, settings_of
from tests.support.paths import ROOT

FIGURES = ROOT / "benchmarks" / "results"


@pytest.fixture(scope="module")
def results():
    return results_page.read(ROOT / "benchmarks" / "results")


def test_page_is_up_to_date(results):
    written = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert written == results_page.page(results), "run python scripts/write_results.py"


def test_figures_are_up_to_date(results):
    drawings = results_page.drawings(results)
    assert {path.stem for path in FIGURES.glob("*.svg")} == set(drawings)
    for name, drawing in drawings.items():
        assert f"rows {drawing.digest}" in (FIGURES / f"{name}.svg").read_text(encoding="utf-8"), name


def test_page_shows_every_figure_and_no_other(results):
    shown = re.findall(r"\(\.\./benchmarks/results/([\w-]+)\.svg\)", results_page.page(results))
    assert sorted(shown) == sorted(results_page.drawings(results))


def test_a_figure_is_the_same_bytes_every_time(results):
    drawing = next(iter(results_page.drawings(results).values()))
    assert drawing.render() == drawing.render()


def test_page_of_few_rows():
    row = {"network": "resnet", "method": "ltp-budget", "compression": 20.0, "seed": 0, "test": 0.9, "val": 0.9}
    results = {
        "quality": {
            "command": "c",
            "machine": "m",
            "data": "d",
            "settings": "s",
            "epochs": {"prune": 6, "finetune": 3},
            "rows": [{**row, "reached": 20.001, "seconds": 60.0}],
        },
        "paper": {"source": "p", "resnet20": "r", "rows": []},
    }
    made = results_page.page(results)
    assert "| LTP, budget mode | 6 + 3 | 90.00 (1) |" in made
    assert set(results_page.drawings(results)) == {"quality-resnet"}


def test_cell_says_the_compression_reached():
    rows = [{"test": t, "reached": 4.1, "compression": 5.0} for t in (0.78, 0.80)]
    assert results_page.cell(rows) == "79.00 ± 1.00 (2) @ 4.1×"
    assert results_page.cell([]) == "–"


@pytest.mark.parametrize(("filled", "density"), [(range(60), 1.0), ([*range(19), *range(21, 60)], 0.0)])
def test_density_at_the_threshold(filled, density):
    counts = [0] * (len(BINS) - 1)
    for i in filled:
        counts[i] = 5
    assert findings.at_threshold({"about_threshold": counts}) == pytest.approx(density)


def test_weights_just_below_the_threshold():
    counts = [0] * (len(BINS) - 1)
    counts[18:21] = 3, 5, 7  # the threshold lies between the last two
    assert findings.just_below({"about_threshold": counts}) == 5


def test_layer_looked_at_closely():
    seen = closely(tensor([[0.1, -0.2], [0.3, 0.4]]), tensor([[0.05, -0.3], [0.3, 0.1]]), 0.04)
    assert seen["kept"] == 0.5
    assert sum(seen["about_threshold"]) == 4
    assert seen["before"] == "0.1 -0.2 0.3 0.4"


def test_kernels_are_looked_at_together_each_by_its_own_threshold():
    before, after = {"a": tensor([1.0, 2.0]), "b": tensor([4.0])}, {"a": tensor([0.1, 2.0]), "b": tensor([-8.0])}
    seen = looked_at(before, after, {"a": 1.0, "b": 16.0}, "a")
    assert (seen["layer"]["tau"], seen["layer"]["kept"]) == (1.0, 0.5)
    assert seen["kernels"]["before"] == "1 2 1"
    assert seen["kernels"]["after"] == "0.1 2 -2"
    assert seen["kernels"]["kept"] == pytest.approx(2 / 3)
    alone = looked_at(before, after, {"a": 1.0, "b": 16.0}, None)
    assert alone == {"kernels": {key: seen["kernels"][key] for key in ("kept", "about_threshold")}}


def test_plans_are_settings_and_differ():
    every = [plan for ablation in plans.ABLATIONS.values() for plan in ablation()]
    for plan in every:
        settings = settings_of(plan, 1000)
        assert (settings.method.lambda_ is None) == (plan["mode"] == "budget")
    assert len({json.dumps(plan, sort_keys=True) for plan in every}) < len(every)  # ablations share runs


def test_rows_are_found_by_plan():
    plan = plans.paper("resnet20", weight_gradient="10")
    rows = [{**plans.paper("resnet20"), "test": 1}, {**plan, "test": 2}]
    assert rows_of.find(rows, plan)["test"] == 2
    assert rows_of.find(rows, plans.budget("resnet")) is None


def test_words_hold(results):
    """What findings.py says in words, beyond the numbers it fills in."""
    rows = results["ablations"]["rows"]
    for l0, l2, none in zip(
        *rows_of.by(rows_of.found(rows, plans.regulariser()), "regulariser").values(), strict=False
    ):
        kept = [row["epochs_seen"][-1]["kept"] for row in (l0, l2, none)]
        assert kept[1] < kept[0] < 0.1 < 0.5 < kept[2]
        fractions = [seen["kept"] for seen in l0["epochs_seen"]]
        assert 1 - fractions[0] > 10 * (fractions[0] - fractions[-1])
        assert 0.9 < findings.growths([l0])[0] < 1.1
        assert findings.growths([l2])[0] < 1e-4
        assert l2["epochs_seen"][-1]["val"] < 0.5 < 0.85 < l0["epochs_seen"][-1]["val"]
    for plain, exact in zip(
        *rows_of.by(rows_of.found(rows, plans.gradient()), "weight_gradient").values(), strict=True
    ):
        assert 0.2 < findings.at_threshold(exact["kernels"]) < findings.at_threshold(plain["kernels"]) < 0.5
        assert plain["epochs_seen"][-1]["kept"] < exact["epochs_seen"][-1]["kept"]
        assert plain["epochs_seen"][-1]["val"] > exact["epochs_seen"][-1]["val"]
        assert findings.crossed(plain)[0] > 0.1
    for t0 in plans.GAP_T0:
        wanted = [plan for plan in plans.gap() if plan["t0"] == t0]
        plain, exact = rows_of.by(rows_of.found(rows, wanted), "weight_gradient").values()
        below = [np.mean([findings.just_below(row["kernels"]) for row in runs]) for runs in (plain, exact)]
        assert below[1] < below[0] / (10 if t0 == 0.01 else 1)
        assert np.mean(findings.lasts(plain, "kept")) < np.mean(findings.lasts(exact, "kept"))
        densities = [np.mean([findings.at_threshold(row["kernels"]) for row in runs]) for runs in (plain, exact)]
        assert densities[1] < densities[0]
    for key, values, _ in (plans.VARIED[0], plans.VARIED[2]):
        reached = findings.means([rows_of.repeated(rows, plans.paper, {key: v}) for v in values], "reached")
        assert reached == sorted(reached)
    ends = findings.means([rows_of.repeated(rows, plans.paper, {"t0": v}) for v in plans.VARIED[1][1]], "test")
    assert max(ends[0], ends[-1]) < min(ends[1:-1])
    tests = findings.means([rows_of.repeated(rows, plans.budget, {"lr": lr}) for lr in plans.LRS], "test")
    assert tests == sorted(tests)


def test_table():
    assert list(tables.table(("a", "b"), [("1", "2")])) == ["| a | b |", "|---|---|", "| 1 | 2 |", ""]
