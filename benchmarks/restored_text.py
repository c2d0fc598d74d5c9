"""The part of docs/results.md about restored BatchNormalization."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean as mean
from typing import Any

from benchmarks.rows import Row, origins
from benchmarks.tables import spread, table, text


def sections(results: Mapping[str, Any]) -> Iterable[str]:
    """A table of forms and learning rates, and what restoring gains."""
    rows = results.get("restore_bn", {}).get("rows", [])
    if not rows:
        return
    commit, processor = origins(rows)
    originals = {
        row["seed"]: 100 * row["original"] for row in rows if row["form"] == "never folded"
    }
    yield "## Restored BatchNormalization\n"
    yield text(
        "The small ResNet of the matrix, on Fashion-MNIST, pruned in budget mode in three forms: with its norms",
        "folded, as exporters do it, and trained so; folded, with norms restored for training; and never folded. The",
        "folded one is given several learning rates, because a network without norms bears less of one.",
        f"{rows[0]['epochs']} + {rows[0]['finetune_epochs']} epochs. Test top-1 in %, mean ± sample standard deviation",
        "over seeds, their number in brackets. Every seed has a dense network of its own, so it covers the training of",
        "the dense network and the pruning run, not the choice of the test sample.",
        *([f"The dense networks have {spread(list(originals.values()))} %."] if originals else []),
        f"All rows are of commit {commit}, on {processor}.",
    )
    compressions = sorted({row["compression"] for row in rows})
    kinds = {
        (row["form"], row["lr"]): [
            r for r in rows if (r["form"], r["lr"]) == (row["form"], row["lr"])
        ]
        for row in rows
    }
    lines = [
        [
            form,
            f"{lr:g}",
            *(cell([row for row in runs if row["compression"] == c]) for c in compressions),
        ]
        for (form, lr), runs in kinds.items()
    ]
    yield from table(("form", "learning rate", *(f"{c:g}×" for c in compressions)), lines)
    for c in compressions:
        yield from gains(
            {
                kind: [row for row in runs if row["compression"] == c]
                for kind, runs in kinds.items()
            },
            c,
        )
    yield text("One network and one data set; a network that never had norms is not among them.")


def cell(rows: Sequence[Row]) -> str:
    """Accuracy over the seeds that trained, their number, and how many failed."""
    tests = [100 * row["test"] for row in rows if row["test"] is not None]
    failed = len(rows) - len(tests)
    said = [f"{spread(tests, 2)} ({len(tests)})"] * bool(tests) + [f"{failed} failed"] * bool(
        failed
    )
    return ", ".join(said) or "–"


def gains(kinds: Mapping[tuple[str, float], Sequence[Row]], compression: float) -> Iterable[str]:
    """Restored beside folded at its best learning rate by validation accuracy, and beside never folded."""
    trained = {
        kind: runs
        for kind, runs in kinds.items()
        if runs and all(row["test"] is not None for row in runs)
    }
    best: dict[str, tuple[float, Sequence[Row]]] = {}
    for (form, lr), runs in sorted(
        trained.items(), key=lambda item: mean(row["val"] for row in item[1])
    ):
        best[form] = lr, runs
    if "restored" not in best:
        return
    for form, said in (("folded", "folded and trained so"), ("never folded", "never folded")):
        if form in best:
            own, (lr, others) = best["restored"][1], best[form]
            tests = {row["seed"]: row["test"] for row in others}
            differences = [
                100 * (row["test"] - tests[row["seed"]]) for row in own if row["seed"] in tests
            ]
            if not differences:
                continue
            yield text(
                f"At {compression:g}×, restored less {said}: {spread(differences)} points by seed. The other one is",
                f"at a learning rate of {lr:g}, the best by validation accuracy of those that trained in every seed.",
            )
