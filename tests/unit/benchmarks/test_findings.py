"""The words about the ablations follow the rows: made-up rows that say the opposite change them."""

import pytest

from benchmarks import findings, plots
from benchmarks.ablations import plans
from benchmarks.ablations.runs import BINS
from tests.support.ablation_rows import row


def said(sentences) -> str:
    return " ".join(" ".join(sentences).split())


def runs(plan=plans.paper, seeds: int = 3, **measured):
    return [row(plan(seed), **measured) for seed in range(seeds)]


def test_soft_l0_is_told_with_the_share_of_the_first_epoch_and_the_cosine():
    words = said(findings.regulariser(runs(kept=(0.3, 0.2)), runs(), runs()))
    assert (
        "30.0 % of the weights are left after the first epoch and 20.0 % in the end, so 88 %"
        in words
    )
    assert "falls to zero along a cosine" in words


@pytest.mark.parametrize(
    ("val", "grown", "poorer", "shrunk"), [(0.3, 0.01, 3, 3), (0.9, 1.0, 0, 0)]
)
def test_l2_is_said_to_be_poorer_and_to_shrink_only_where_it_does(val, grown, poorer, shrunk):
    words = said(findings.regulariser(runs(), runs(val=val, grown=grown), runs()))
    assert f"less than with soft L0 in {poorer} of 3 seeds" in words
    assert f"ends below 0.1 of its start in {shrunk} of 3 runs" in words


@pytest.mark.parametrize(("kept", "val", "below", "count"), [(0.3, 0.7, 0, 3), (0.1, 0.9, 9, 0)])
def test_the_exact_gradient_is_compared_seed_by_seed(kept, val, below, count):
    own = runs(kept=(0.4, kept), val=val, below=below)
    words = said(findings.gradient({"4": runs(), "10": own, "20": runs()}))
    assert (
        f"(10) beside (4): more weights are kept in the end in {count} of 3 seeds, validation accuracy is lower in "
        f"{count} of 3 seeds, the density at the threshold is lower in {count} of 3 seeds"
    ) in words
    assert "(20) beside (4): more weights are kept in the end in 0 of 3 seeds" in words


def test_both_courses_are_given_where_one_might_be_said_to_stall():
    epochs = {"epochs": 3, "finetune_epochs": 0}
    kinds = {
        k: [row({**plans.paper(), **epochs}, kept=(0.5, 0.4, last))]
        for k, last in (("4", 0.2), ("10", 0.3))
    }
    words = said(findings.gradient(kinds))
    assert "with (4) from 50.0 to 20.0 %, with (10) from 50.0 to 30.0 %" in words
    assert "flattens every one" in words


def test_the_gap_is_told_at_the_width_where_it_is_widest():
    def kinds(below: int):
        return {
            "4": runs(below=100),
            "10": runs(below=below, kept=(0.5, 0.4)),
            "20": runs(below=100),
        }

    words = said(findings.gap({0.001: kinds(90), 0.01: kinds(20), 1.0: kinds(200)}))
    assert (
        "at T0 = 0.01: 20 of them up to 5 % below √τ, where (4) leaves 100; 40.0 % of all weights"
        in words
    )
    assert (
        "(10): the density at the threshold is below that of (4), on average over seeds, at T0 = 0.001, 0.01;"
        in words
    )
    assert (
        "(20): the density at the threshold is below that of (4), on average over seeds, at no T0;"
        in words
    )


def test_error_bars_are_sample_standard_deviations():
    budget = [row(plans.budget(seed), val=v, test=v) for seed, v in enumerate((0.80, 0.82))]
    words = said(findings.seeds({"budget": budget}))
    assert (
        "at most 1.4 points at any epoch of the trail, 1.4 points after fine-tuning, and 0.00×"
        in words
    )


@pytest.mark.parametrize(
    ("factor", "order"), [(1, "rises with each step"), (-1, "does not rise with each step")]
)
def test_a_compression_is_said_to_rise_only_where_it_does(factor, order):
    changed = {
        key: [
            runs(reached=10.0 + factor * i, test=0.5 + 0.1 * (i == 1)) for i, _ in enumerate(values)
        ]
        for key, values, _ in plans.VARIED
    }
    words = said(findings.sensitivity(changed))
    assert words.count(f"the compression {order}") == 3
    assert "between 50.0 and 60.0 %, highest at 3." in words


def test_the_best_and_the_poorest_setting_are_named():
    rates = {
        "learning rate 0.1": runs(plans.budget, test=0.7),
        "learning rate 0.3": runs(plans.budget, test=0.6),
    }
    words = said(
        findings.budget_sensitivity(rates, {"epochs 8 + 4": runs(plans.budget, reached=6.0)})
    )
    assert "compression is 5.0× to 6.0×" in words
    assert (
        "highest with learning rate 0.1, 70.0 %, and lowest with learning rate 0.3, 60.0 %" in words
    )


@pytest.mark.parametrize(
    ("filled", "density"), [(range(60), 1.0), ([*range(19), *range(21, 60)], 0.0)]
)
def test_density_at_the_threshold(filled, density):
    counts = [0] * (len(BINS) - 1)
    for i in filled:
        counts[i] = 5
    assert findings.at_threshold({"about_threshold": " ".join(map(str, counts))}) == pytest.approx(
        density
    )


def test_weights_just_below_the_threshold():
    counts = [0] * (len(BINS) - 1)
    counts[18:21] = 3, 5, 7  # the threshold lies between the last two
    assert findings.just_below({"kernels": {"about_threshold": " ".join(map(str, counts))}}) == 5


def test_every_kind_of_run_has_a_name():
    assert set(plots.KINDS) == set(plots.LINES) == set(plans.GRADIENTS)
    assert set(plots.REGULARISERS) == set(plans.REGULARISERS)
