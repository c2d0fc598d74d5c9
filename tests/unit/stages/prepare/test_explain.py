"""When an original is taken to know its labels, and what other numbers of its classes would explain."""

import numpy as np
import pytest

from ltp_pipeline.stages.prepare.explain import SURE, Variant, _readings, assign, beats


@pytest.mark.parametrize(
    ("accuracy", "samples", "guess", "clear"),
    [
        (0.98, 72, 0.25, True),
        (0.30, 72, 0.25, False),  # above guessing, but such luck is common
        (0.30, 2000, 0.25, True),
        (0.25, 10**6, 0.25, False),
        (0.0, 500, 0.1, False),
        (0.97, 200, 0.95, False),
        (0.97, 5000, 0.95, True),
        (0.625, 8, 0.25, True),
    ],
)
def test_better_than_guessing_is_a_matter_of_how_many_samples_say_so(
    accuracy, samples, guess, clear
):
    assert beats(accuracy, samples, guess) == clear


def test_the_bound_is_one_sided_at_95_percent():
    """Of originals that only guess, one in twenty passes, as a simulation shows."""
    rng = np.random.default_rng(0)
    right = rng.binomial(1000, 0.25, 20_000) / 1000
    assert np.mean([beats(share, 1000, 0.25) for share in right]) == pytest.approx(0.05, abs=0.01)


def test_an_original_that_is_always_right_fits_however_few_samples_there_are():
    assert beats(1.0, 2, 0.5)
    assert beats(1.0, 30, 1.0)


def test_each_label_gets_the_answer_that_goes_with_it_most_often():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 400)
    order = np.array([3, 0, 4, 1, 2])
    answers = np.where(rng.random(400) < 0.7, order[labels], rng.integers(0, 5, 400))
    np.testing.assert_array_equal(assign(labels, answers, 5), order)


def test_no_answer_is_given_twice_and_what_was_not_seen_keeps_its_number_where_it_can():
    labels, answers = np.array([0, 0, 1, 1, 1]), np.array([2, 2, 2, 2, 2])
    assert sorted(assign(labels, answers, 4)) == [0, 1, 2, 3]
    assert assign(labels, answers, 4)[1] == 2
    assert assign(labels, answers, 4)[3] == 3


def test_other_numbers_for_classes_are_judged_by_samples_that_did_not_choose_them():
    """With many classes, chance alone gives a matching that fits the samples it was made from."""
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 50, 512), rng.random((512, 50))
    fitted = assign(labels, scores.argmax(1), 50)[labels]
    assert (fitted == scores.argmax(1)).mean() > 0.1
    (found,) = _readings(Variant("", "", lambda x: x), scores, labels, {})
    assert found.samples == 256
    assert not beats(found.accuracy, found.samples, np.bincount(labels).max() / 512, SURE)
