"""The sections of docs/results.md on the matrix, ResNet20 and the paper's claim, made from their rows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.matrix import CHOSEN_ON, DEFAULTS
from benchmarks.tables import spread, table, text

# Two-sided 95 % quantiles of Student's t, by the number of seeds.
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
NAMES = {
    "mlp": "MLP, digits",
    "gemm-few": "CNN with a large Gemm, Fashion-MNIST, pruned with 8,000 of its 55,000 images",
    "resnet": "small ResNet, Fashion-MNIST, 8,000 images",
    "cnn": "CNN without norms, CIFAR-10, 6,000 images",
    "alexnet": "AlexNet's layout at 32 × 32, CIFAR-10, 6,000 images",
    "mobilenet": "MobileNet-style, Fashion-MNIST, 8,000 images",
    "sequence": "1-D CNN, tones made by a script, 6,000 sequences",
    "resnet20": "ResNet20, CIFAR-10, trained with 20,000 and pruned with 6,000 images",
    "languages": "transformer of two layers, words of nine languages, 9,000 words",
}
OTHERS = {
    "one-shot": "one-shot magnitude",
    "classifier-spared": "one-shot, classifier excluded",
    "gradual": "gradual magnitude",
    "common-threshold": "LTP, one common threshold",
}

Row = dict[str, Any]
Accuracies = dict[str, dict[int, float]]  # test accuracy in %, by method and seed


def sections(results: Mapping[str, Any]) -> Iterable[str]:
    """All that there are rows for."""
    if rows := list(results.get("matrix", {}).get("rows", [])):
        yield from _matrix(rows)
    if rows := list(results.get("resnet20", {}).get("rows", [])):
        yield from _resnet20(rows)
    if rows := list(results.get("languages", {}).get("rows", [])):
        yield from _languages(rows)
    if choices := list(results.get("choices", {}).get("rows", [])):
        yield from _choices(choices)
    if claims := list(results.get("paper_claim", {}).get("rows", [])):
        yield from _claim(claims)


def _matrix(rows: Sequence[Row]) -> Iterable[str]:
    yield "## The defaults in twelve cells\n"
    yield text(
        "A cell is a network and a compression. Nothing is set but the target and the seed. LTP and one-shot global",
        "magnitude are the result and the baseline of `ltp-pipeline run`, measured from the exported files in",
        "onnxruntime; the other methods are trained in torch, for as many epochs, with the same batches and loss.",
        "Test top-1 in %, mean ± sample standard deviation over seeds. Each seed has a dense network of its own.",
    )
    yield text(
        "Differences are paired by seed, LTP less the other method, with a 95 % t-interval. The interval covers the",
        "training of the dense network and the pruning run, not the choice of the test sample. *Ahead* and *behind*",
        "are said only where the interval excludes zero.",
    )
    yield text(
        f"The defaults were chosen by validation accuracy on the cells of {_listed(CHOSEN_ON)} and on networks that",
        "are not in the table; the other cells were measured once, with the defaults settled.",
    )
    cells = accuracies(rows)
    for title, names in (
        ("Cells that judge", _judging(cells)),
        ("Cells that the defaults were chosen on", CHOSEN_ON),
    ):
        own = {key: found for key, found in cells.items() if key[0] in names}
        if own:
            yield f"### {title}\n"
            yield from _tables(own)
    yield from _gains(rows)


def accuracies(rows: Sequence[Row]) -> dict[tuple[str, float], Accuracies]:
    """Test accuracies of the cells that have rows of the defaults: LTP's, one-shot magnitude's and the original's."""
    cells: dict[tuple[str, float], Accuracies] = {}
    for row in rows:
        found = cells.setdefault((row["cell"], row["compression"]), {})
        keys = {"original": "original", "ltp": "test", "one-shot": "one-shot"}
        named = keys if row["method"] == DEFAULTS else {row["method"]: "test"}
        for method, key in named.items():
            if row[key] is not None:
                found.setdefault(method, {})[row["seed"]] = 100 * row[key]
    return {key: found for key, found in cells.items() if "ltp" in found}


def _tables(cells: Mapping[tuple[str, float], Accuracies]) -> Iterable[str]:
    others = {
        key: name for key, name in OTHERS.items() if any(key in found for found in cells.values())
    }
    methods = {"original": "original", **others, "ltp": "LTP"}
    lines = [
        [
            NAMES[name],
            f"{c:g}×",
            *(spread(list(found[m].values()), 2) if m in found else "–" for m in methods),
        ]
        for (name, c), found in cells.items()
    ]
    yield from table(("network and data", "target", *methods.values()), lines)
    spared = {"classifier-spared" in found for found in cells.values()}
    if len(spared) > 1:
        yield text(
            "– stands where the classifier that is to be spared has more weights than the target leaves."
        )
    lines = []
    for (name, c), found in cells.items():
        judged = [_judged(found, other) for other in others]
        lines.append([NAMES[name].split(",")[0], f"{c:g}×", *judged])
    yield text("LTP less each of them, in points:")
    yield from table(("network", "target", *others.values()), lines)
    if all(len(found["ltp"]) == 1 for found in cells.values()):
        yield text("One seed, so there is no interval, and neither *ahead* nor *behind* is said.")
        return
    for other, name in others.items():
        verdicts = [verdict(found, other) for found in cells.values() if other in found]
        counts = ", ".join(
            f"{word} in {verdicts.count(word)}" for word in ("ahead", "behind", "level")
        )
        yield text(f"Beside {name} LTP is {counts} of {len(verdicts)}.")


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """The 95 % t-interval of a mean."""
    if len(differences) < 2:
        return -np.inf, np.inf
    half = T_95[len(differences)] * np.std(differences, ddof=1) / np.sqrt(len(differences))
    return float(np.mean(differences) - half), float(np.mean(differences) + half)


def verdict(found: Accuracies, other: str) -> str:
    """Whether LTP is ahead of another method, behind it, or neither can be said."""
    low, high = interval(_differences(found, other))
    return "ahead" if low > 0 else "behind" if high < 0 else "level"


def _differences(found: Accuracies, other: str) -> list[float]:
    return [
        value - found[other][seed]
        for seed, value in found["ltp"].items()
        if seed in found.get(other, {})
    ]


def _judged(found: Accuracies, other: str) -> str:
    if not (differences := _differences(found, other)):
        return "–"
    low, high = interval(differences)
    said = verdict(found, other)
    bounds = f" ({low:+.2f} to {high:+.2f})" if len(differences) > 1 else ""
    return f"{np.mean(differences):+.2f}{bounds}" + ("" if said == "level" else f", {said}")


def _gains(rows: Sequence[Row]) -> Iterable[str]:
    found = [row for row in rows if row.get("gain") is not None]
    if not found:
        return
    yield "### Compression at equal accuracy\n"
    yield text(
        "The gain of the report: LTP's compression / the one that one-shot global magnitude reaches at LTP's test",
        "accuracy, linear in log compression between measured points; a bound where these do not enclose it.",
    )
    lines = []
    for name, compression in dict.fromkeys((row["cell"], row["compression"]) for row in found):
        own = [row for row in found if (row["cell"], row["compression"]) == (name, compression)]
        gains = ", ".join(f"{row['gain_bound'] or ''} {row['gain']:.2f}".strip() for row in own)
        lines.append([NAMES[name].split(",")[0], f"{compression:g}×", gains])
    yield from table(("network", "target", "gain, by seed"), lines)


def _resnet20(rows: Sequence[Row]) -> Iterable[str]:
    yield "## ResNet20 on CIFAR-10\n"
    epochs = next(row["epochs"] for row in rows if row["method"] == DEFAULTS)
    yield text(
        f"The paper's network for small images; the paper prunes it on CIFAR-100. {NAMES['resnet20']}, for",
        f"{epochs['prune'] + epochs['finetune']} epochs in all: far fewer images and steps than usual, because two",
        "cores must do. Measured as the cells above.",
    )
    yield from _tables(accuracies(rows))


def _languages(rows: Sequence[Row]) -> Iterable[str]:
    yield "## A transformer that tells languages apart\n"
    yield text(
        "A letter is a token, a word is a sample, and no word is in two splits (`words` in benchmarks/datasets.py).",
        "Trained and pruned with AdamW, whose rate was chosen on another transformer, below. Methods as above.",
    )
    yield from _tables(accuracies(rows))
    yield from _gains(rows)


def _choices(rows: Sequence[Row]) -> Iterable[str]:
    yield "## What the rules were chosen by\n"
    rates = [row for row in rows if "lr" in row]
    if rules := [row for row in rows if "lr" not in row]:
        yield from _rules(rules)
    if rates:
        yield from _rates(rates)


def _rules(rows: Sequence[Row]) -> Iterable[str]:
    """Learning from the original, and how strongly thresholds are learned."""
    yield text(
        f"Validation top-1 in %, on the cells that do not judge, {_seeds(rows)}: learned from the labels",
        "alone, and half from the original (R7); one-shot magnitude, masks held",
        "(m = 0) and thresholds learned fully (m = 1) (R5). Other networks were tried too; their rows were not kept.",
    )
    methods = list(dict.fromkeys((row["distill"], row["strength"]) for row in rows))
    words = {None: "one-shot", 0.0: "m = 0", 1.0: "m = 1"}
    lines = []
    for name, c in dict.fromkeys((row["cell"], row["compression"]) for row in rows):
        own = [row for row in rows if (row["cell"], row["compression"]) == (name, c)]
        found = [
            [r["val"] for r in own if (r["distill"], r["strength"]) == method] for method in methods
        ]
        cells = [f"{100 * np.mean(values):.2f}" if values else "–" for values in found]
        lines.append(
            [
                NAMES[name].split(",")[0],
                f"{c:g}×",
                f"{100 * np.mean([r['original'] for r in own]):.2f}",
                *cells,
            ]
        )
    head = [
        f"{words[m]}, {'half from the original' if share else 'labels'}" for share, m in methods
    ]
    yield from table(("network", "target", "original", *head), lines)


def _rates(rows: Sequence[Row]) -> Iterable[str]:
    """AdamW's learning rate."""
    by_rate = {
        lr: [row for row in rows if row["lr"] == lr]
        for lr in dict.fromkeys(row["lr"] for row in rows)
    }
    targets = dict.fromkeys(row["compression"] for row in rows)
    yield text(
        "AdamW's learning rate, by validation top-1 in %: a transformer of two layers that reads Fashion-MNIST",
        f"as 49 tokens, original {100 * np.mean([row['original'] for row in rows]):.2f} %, {_seeds(rows)}.",
    )
    lines = [
        [
            f"{c:g}×",
            *(
                f"{100 * np.mean([r['val'] for r in own if r['compression'] == c]):.2f}"
                for own in by_rate.values()
            ),
        ]
        for c in targets
    ]
    yield from table(("target", *(f"{lr:g}" for lr in by_rate)), lines)


def _seeds(rows: Sequence[Row]) -> str:
    count = len({row["seed"] for row in rows})
    return "one seed" if count == 1 else f"mean over {count} seeds"


def _claim(rows: Sequence[Row]) -> Iterable[str]:
    yield "## Does LTP as published beat global pruning here?\n"
    yield text(
        "Paper mode with T0 = 1e-3 and thresholds at 1e-5 of the learning rate, as in the paper; λ, here times the",
        "number N of weights in kernels, was found by a few trials on seed 0 so that about the paper's compressions",
        "are reached. Global magnitude is cut to the same count and trained as long. Test top-1 in %, of the files.",
    )
    lines, verdicts = [], []
    for name, pull in dict.fromkeys((row["cell"], row["pull"]) for row in rows):
        own = [row for row in rows if (row["cell"], row["pull"]) == (name, pull)]
        found = accuracies([{**row, "compression": 0, "method": DEFAULTS} for row in own])[name, 0]
        reached = spread([row["reached"] for row in own], 2)
        cells = [spread(list(found[m].values()), 2) for m in ("original", "one-shot", "ltp")]
        lines.append(
            [
                NAMES[name].split(",")[0],
                f"{pull:g}",
                f"{reached}×",
                *cells,
                _judged(found, "one-shot"),
            ]
        )
        if len(own) > 1:
            verdicts.append(verdict(found, "one-shot"))
    head = (
        "network",
        "λ·N",
        "compression",
        "original",
        "global magnitude",
        "LTP as published",
        "difference",
    )
    yield from table(head, lines)
    counts = [f"{word} in {verdicts.count(word)}" for word in ("ahead", "behind", "level")]
    yield text(
        f"Where there are several seeds, LTP as published is {', '.join(counts)} of {len(verdicts)} rows."
    )


def _judging(cells: Mapping[tuple[str, float], Accuracies]) -> list[str]:
    return [name for name, _ in cells if name not in CHOSEN_ON]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(NAMES[name].split(",")[0] for name in names)
