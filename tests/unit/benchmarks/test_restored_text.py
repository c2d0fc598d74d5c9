"""The words about restored norms follow the rows."""

from benchmarks import restored_text
from benchmarks.restore_bn import EPOCHS


def rows(form: str, lr: float, tests):
    """A run for each test accuracy; None for one that failed."""
    where = {"commit": "abc", "processor": "p", "original": 0.9, "compression": 10, **EPOCHS}
    return [
        {
            "form": form,
            "lr": lr,
            "seed": seed,
            "test": test,
            **({} if test is None else {"val": test}),
            **where,
        }
        for seed, test in enumerate(tests)
    ]


def page(found) -> str:
    return " ".join("\n".join(restored_text.sections({"restore_bn": {"rows": found}})).split())


def test_restored_is_compared_with_the_best_rate_that_trained_in_every_seed():
    folded = [
        *rows("folded", 0.03, (0.85, None)),
        *rows("folded", 0.01, (0.80, 0.82)),
        *rows("folded", 0.003, (0.7, 0.7)),
    ]
    words = page([*folded, *rows("restored", 0.03, (0.86, 0.86))])
    assert "| folded | 0.03 | 85.00 (1), 1 failed |" in words
    assert "At 10×, restored less folded and trained so: 5.0 ± 1.4 points by seed." in words
    assert "at a learning rate of 0.01" in words


def test_a_loss_is_told_like_a_gain():
    words = page([*rows("restored", 0.03, (0.80, 0.80)), *rows("never folded", 0.03, (0.85, 0.85))])
    assert "restored less never folded: -5.0 ± 0.0 points by seed" in words
    assert "less folded" not in words


def test_there_is_nothing_to_say_without_rows():
    assert not list(restored_text.sections({}))


def test_nothing_is_compared_where_restored_failed():
    words = page([*rows("restored", 0.03, (None, 0.80)), *rows("folded", 0.03, (0.85, 0.85))])
    assert "restored less" not in words
