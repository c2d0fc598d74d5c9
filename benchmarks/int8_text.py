"""The part of docs/results.md about int8 files."""

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.rows import Row, origins
from benchmarks.tables import spread, table, text

NAMES = {
    "resnet50": "ResNet-50",
    "mobilenetv2": "MobileNetV2",
    "encoder": "encoder 12 × 768, 128 tokens",
}
FORMS = ("7 bits", "8 bits", "trained")


def sections(results: Mapping[str, Any]) -> Iterable[str]:
    """What they cost in accuracy, and what they bring."""
    about, rows = results.get("int8"), results.get("int8_drop", {}).get("rows", [])
    if about is None and not rows:
        return
    yield "## Files in 8 bits\n"
    if rows:
        yield from drops(rows)
    if about is not None:
        yield from speed(about)


def drops(rows: list[Row]) -> Iterable[str]:
    """Float less int8, of the same runs."""
    commit, processor = origins(rows)
    yield text(
        "What the int8 file loses beside the pruned float file of the same run, in points of test top-1 on the whole",
        "split, mean ± sample standard deviation over seeds; below zero it gains. Weights in 7 bits are the default,",
        "8 bits may overflow on x86 without VNNI, and *trained* has `train.quantization_aware` and 7 bits. Networks, data and",
        f"dense training are those of the table above. All rows are of commit {commit}, on {processor}.",
    )
    cells = dict.fromkeys((row["cell"], row["compression"]) for row in rows)
    lines = []
    for cell, compression in cells:
        found = [row for row in rows if (row["cell"], row["compression"]) == (cell, compression)]
        values = spread([100 * row[FORMS[0]]["float"] for row in found], 2)
        lost = [
            spread([100 * (row[form]["float"] - row[form]["int8"]) for row in found], 2)
            for form in FORMS
        ]
        left = max(row[FORMS[0]]["left_float"] for row in found)
        lines.append([cell, f"{compression:g}×", str(len(found)), values, *lost, str(left)])
    head = (
        "network",
        "target",
        "seeds",
        "float file, %",
        *(f"lost, {form}" for form in FORMS),
        "layers left float",
    )
    yield from table(head, lines)


def speed(about: Mapping[str, Any]) -> Iterable[str]:
    """Time and bytes beside the original file."""
    machine, version = about["machine"], about["versions"]["onnxruntime"]
    yield text(
        "Weights by seed, the smallest of each kernel zero; int8 packed beside the original float file, in onnxruntime",
        f"{version} on {machine['processor']}, {'with' if machine['vnni'] else 'without'} VNNI.",
        "Time is that of one sample on one thread, the median of interleaved runs.",
    )
    shares = list(next(iter(about["results"].values()))["bytes"])
    lines = [
        [NAMES[name], *(f"{value:.3f}" for value in (found["latency"], *found["bytes"].values()))]
        for name, found in about["results"].items()
    ]
    yield from table(("network", "time", *(f"bytes, {at} zeros" for at in shares)), lines)
    took = {NAMES[name]: found["quantize_s"] for name, found in about["results"].items()}
    yield text(
        f"Quantising took {', '.join(f'{seconds:.0f} s ({name})' for name, seconds in took.items())}."
    )
