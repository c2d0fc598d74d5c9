"""docs/results.md, made from the results files: what is in the page is in them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import ablation_text, plots, without_norms
from benchmarks.drawing import Drawing
from benchmarks.plots import METHODS
from benchmarks.rows import Row, mean_std
from benchmarks.tables import figure, sentence, table, text

FILES = ("quality", "without_norms", "ablations", "six_networks", "decoding", "paper")
NAMES = {"resnet": "Small ResNet", "mobilenet": "MobileNet-style network", "resnet20": "ResNet20"}
STAGES = ("import", "original", "learn", "finetune", "export", "validate")

HEAD = """# Results

Written by `python scripts/write_results.py` from the files in `benchmarks/results`; do not edit.

What was measured here was measured on Fashion-MNIST and a processor core, with networks that can be trained so; the
paper's own figures are on ImageNet, stand in a table of their own, and are marked as the paper's. Numbers of equations
are those of [method.md](method.md).
"""


def read(folder: Path) -> dict[str, Any]:
    """The results files that there are."""
    paths = {name: folder / f"{name}.json" for name in FILES}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.is_file()}


def drawings(results: Mapping[str, Any]) -> dict[str, Drawing]:
    """Every figure that there are rows for, by its name."""
    rows, compared = rows_of(results, "ablations"), rows_of(results, "quality")
    made = {
        **{f"quality-{n}": plots.quality(compared, n) for n in dict.fromkeys(row["network"] for row in compared)},
        "regulariser": plots.regulariser(rows),
        "gradient-scatter": plots.scatter(rows),
        "gradient-gap": plots.gap(rows),
        "gap-by-t0": plots.gap_by_t0(rows),
        "seeds": plots.seeds(rows),
        "sensitivity": plots.sensitivity(rows),
        "budget-sensitivity": plots.budget_sensitivity(rows),
    }
    return {name: drawing for name, drawing in made.items() if drawing is not None}


def rows_of(results: Mapping[str, Any], name: str) -> list[Row]:
    """Rows of a results file, none where it is missing."""
    return list(results.get(name, {}).get("rows", []))


def page(results: Mapping[str, Any]) -> str:
    """The whole page."""
    parts = (comparison, paper, defaults, ablation_text.sections, six_networks, decoding, measured)
    return "\n".join([HEAD, *(line for part in parts for line in part(results))]).rstrip() + "\n"


def comparison(results: Mapping[str, Any]) -> Iterable[str]:
    """Our rows for every network."""
    rows = rows_of(results, "quality")
    if not rows:
        return
    about = results["quality"]
    yield "## Accuracy at equal compression\n"
    yield text(
        f"{about['data']}; {about['settings']}. All methods start from the same dense network and train for the same",
        "number of epochs in all. Test top-1 in %, mean ± standard deviation over seeds, their number in brackets.",
        "Paper mode is given a λ and not a compression: the one it reached is given with @.",
        sentence(about.get("note", "")),
    )
    for network in dict.fromkeys(row["network"] for row in rows):
        yield f"### {NAMES.get(network, network)}, Fashion-MNIST\n"
        yield from quality_table([row for row in rows if row["network"] == network], about["epochs"])
        yield figure(f"quality-{network}", "Test accuracy against compression")


def defaults(results: Mapping[str, Any]) -> Iterable[str]:
    """The defaults beside one-shot magnitude, and beside an earlier version of them."""
    rows = rows_of(results, "without_norms")
    if not rows:
        return
    about = results["without_norms"]
    yield "## The defaults beside one-shot magnitude\n"
    yield text(
        "Nothing set but the target and the seed; test top-1 in % of the exported files in onnxruntime. Intervals are",
        "95 % t-intervals of the paired differences over seeds of pruning, from one dense network each; the MLP is",
        "trained anew for each seed. They cover the training run, not the choice of the test sample.",
        sentence(about.get("note", "")),
    )
    summary = list(without_norms.summary(rows))
    beside = "Beside budget mode of before (R5) and (R6), 12 + 6 epochs each:"
    for other, title in (("magnitude", ""), ("earlier", beside)):
        if lines := [cells for against, cells in summary if against == other]:
            yield from [text(title)] if title else []
            yield from table([other if c == "other" else c for c in without_norms.COLUMNS], lines)


def quality_table(rows: Sequence[Row], epochs: Mapping[str, int]) -> Iterable[str]:
    """A line for every method, a column for every compression."""
    compressions = sorted({row["compression"] for row in rows})
    whole = epochs["prune"] + epochs["finetune"]
    divided = {"one-shot": f"0 + {whole}", "str": f"{whole} + 0"}
    lines = []
    for method, (name, _, _) in METHODS.items():
        own = [row for row in rows if row["method"] == method]
        if own:
            cells = [cell([row for row in own if row["compression"] == c]) for c in compressions]
            lines.append([name, divided.get(method, f"{epochs['prune']} + {epochs['finetune']}"), *cells])
    return table(("method", "epochs", *(f"{c:g}×" for c in compressions)), lines)


def cell(rows: Sequence[Row]) -> str:
    """Mean ± standard deviation (seeds), and the compression where it is not the one asked for."""
    if not rows:
        return "–"
    mean, std = mean_std([100 * row["test"] for row in rows])
    reached, _ = mean_std([row["reached"] for row in rows])
    note = "" if abs(reached / rows[0]["compression"] - 1) < 0.01 else f" @ {reached:.1f}×"
    spread = f" ± {std:.2f}" if len(rows) > 1 else ""
    return f"{mean:.2f}{spread} ({len(rows)}){note}"


def paper(results: Mapping[str, Any]) -> Iterable[str]:
    """The paper's own figures."""
    about = results["paper"]
    yield "### The paper's figures, on ImageNet\n"
    yield text(f"Source: {about['source']}. – stands for what the paper does not give.")
    columns = ("network", "method", "epochs", "compression", "top1", "top5")
    lines = [[f"{row[c]:g}×" if c == "compression" else str(row.get(c, "–")) for c in columns] for row in about["rows"]]
    yield from table(("network", "method", "epochs", "compression", "top-1, %", "top-5, %"), lines)
    yield text(f"ResNet20: {about['resnet20']}.")


def six_networks(results: Mapping[str, Any]) -> Iterable[str]:
    """What the paper's networks cost at full size."""
    about = results.get("six_networks")
    if about is None:
        return
    yield "## The paper's six networks at full size\n"
    yield text(
        "One epoch on a handful of noise images with untrained weights, so that accuracy means nothing: what is shown",
        "is that the whole pipeline works on them, and its cost.",
        sentence(about.get("note", "")),
    )
    head = ("network", "kernels", "elements", "compression", *(f"{s}, s" for s in STAGES), "all, s", "peak memory, GiB")
    lines = [
        [row["network"], str(row["kernels"]), f"{row['elements']:,}", f"{row['compression']:.2f}×"]
        + [f"{row['seconds'][stage]:.1f}" for stage in (*STAGES, "all")]
        + [f"{row['peak_memory_bytes'] / 2**30:.2f}"]
        for row in about["rows"]
    ]
    yield from table(head, lines)
    yield text("Bytes of the file given, and of each format:")
    formats = list(dict.fromkeys(name for row in about["rows"] for name in row["bytes"]))
    sizes = [[f"{row['bytes'][n]:,}" if n in row["bytes"] else "–" for n in formats] for row in about["rows"]]
    yield from table(("network", *formats), [[r["network"], *s] for r, s in zip(about["rows"], sizes, strict=True)])


def decoding(results: Mapping[str, Any]) -> Iterable[str]:
    """How busy decoding keeps the cores."""
    about = results.get("decoding")
    if about is None:
        return
    yield "## Decoding\n"
    yield text(
        "JPEGs of 500×375 pixels and about 100 kB to normalised inputs of 224×224, with the random crop and flip of",
        "training or the centre crop of evaluation. Beside plain Pillow and NumPy in one process, and beside",
        f"{about['workers']} such processes at once that have nothing to do with each other, which is what the cores",
        f"have to give. The bar is 0.9 × workers = {0.9 * about['workers']:.1f} × plain.",
        sentence(about.get("note", "")),
    )
    head = ("crop", "by", "images/s", "plain", "plain processes at once", "ratio", "that of plain processes")
    lines = [
        [row["kind"], f"{about['workers']} {row['way']}"]
        + [f"{row[f'{of}samples_per_second']:.0f}" for of in ("", "plain_", "bound_")]
        + [f"{row['ratios'][key]:.2f}" for key in ("median", "bound")]
        for row in about["rows"]
    ]
    yield from table(head, lines)
    bar = 0.9 * about["workers"]
    for row in (r for r in about["rows"] if r["way"] == "processes"):
        ratio, most = row["ratios"]["median"], row["ratios"]["bound"]
        judged = "reaches the bar" if ratio >= bar else f"misses the bar; plain processes have {most:.2f}"
        busy = row["ratios"].get("workers at work")
        share = f"; the processes were at work {100 * busy:.0f} % of the time" if busy else ""
        yield text(f"{row['kind'].capitalize()}: {ratio:.2f} {judged}{share}.")


def measured(results: Mapping[str, Any]) -> Iterable[str]:
    """Commands, versions and time of each results file."""
    yield "## How it was measured\n"
    lines = []
    for name, about in results.items():
        if "command" not in about:
            continue
        rows = about["rows"]
        taken = sum(r["seconds"]["all"] if isinstance(r["seconds"], dict) else r["seconds"] for r in rows)
        seeds = sorted({row["seed"] for row in rows if "seed" in row} or {about.get("seed", 0)})
        span = f"{seeds[0]}–{seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
        command = f"`{about['command']}`"
        lines.append([f"`{name}.json`", command, machine_of(about), str(len(rows)), span, f"{taken / 60:.0f}"])
    yield from table(("file", "command", "on", "rows", "seeds", "minutes in all"), lines)
    yield text(
        "Seconds of each row are in the files. The cores were shared with other work while most rows were measured, so",
        "times are upper bounds.",
    )


def machine_of(about: Mapping[str, Any]) -> str:
    """Processor, threads and versions, in whichever form a file has them."""
    if "machine" in about:
        return ", ".join([about["machine"], *(f"{name} {v}" for name, v in about.get("versions", {}).items())])
    found = about["environment"]
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in ("python", "torch", "onnxruntime"))
    return f"{found['platform']}, {found['threads']} threads, {versions}"
