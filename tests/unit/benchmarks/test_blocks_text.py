"""The words about blocks follow the rows."""

from typing import Any

from benchmarks import blocks_text


def rows(seed: int, single: float, blocks: float) -> list[dict[str, Any]]:
    where = {"cell": "resnet", "compression": 10, "seed": seed, "original": 0.9}
    none = {"one-shot": None, "one-shot-single": None}
    return [
        {
            **where,
            "block": "4x1",
            "test": blocks,
            "one-shot": 0.7,
            "one-shot-single": 0.8,
            "in_blocks": 0.987,
        },
        {**where, "block": None, "test": single, **none, "in_blocks": 0.0},
    ]


def page(found: list[dict[str, Any]]) -> str:
    return " ".join("\n".join(blocks_text.sections({"blocks": {"rows": found}})).split())


def test_both_methods_stand_in_a_line_and_differences_are_paired_by_seed():
    words = page([*rows(0, 0.86, 0.85), *rows(1, 0.88, 0.85)])
    assert (
        "| 10× | 90.00 ± 0.00 | 87.00 ± 1.41 | 85.00 ± 0.00 | 80.00 ± 0.00 | 70.00 ± 0.00 |"
        in words
    )
    assert (
        "| small ResNet | 10× | 99% | -2.00 (-14.71 to +10.71) | -10.00 (-10.00 to -10.00) |"
        in words
    )


def test_one_seed_has_no_interval_and_a_missing_row_is_a_dash():
    assert "| 99% | -1.00 | -10.00 |" in page(rows(0, 0.86, 0.85))
    assert "| 99% | – | -10.00 |" in page(rows(0, 0.86, 0.85)[:1])


def test_a_baseline_that_guesses_is_explained():
    found = rows(0, 0.86, 0.85)
    assert "guessed" not in page(found)
    found[0]["one-shot"] = 0.1
    assert "one of ten classes is guessed" in page(found)


def test_there_is_nothing_to_say_without_rows():
    assert not list(blocks_text.sections({}))


def test_times_on_sparse_kernels_are_the_median_over_seeds():
    times = [("single", 0.8), ("single", 0.9), ("single", 0.7), ("4x1", 0.5)]
    found = [
        {"run": f"resnet20-10x-{seed}-{how}", "dense_ms": 0.75, "ratio": ratio}
        for seed, (how, ratio) in enumerate(times)
    ]
    words = " ".join("\n".join(blocks_text.speed(found)).split())
    assert "| 10× | 0.750 | 0.80 | 0.50 |" in words


def test_times_are_in_the_order_of_targets():
    found = [{"run": f"resnet-{c}x-0-single", "dense_ms": 0.1, "ratio": 1.0} for c in (10, 20, 5)]
    words = "\n".join(blocks_text.speed(found))
    assert "seed 0;" in words
    assert words.index("| 5×") < words.index("| 10×") < words.index("| 20×")
