"""The part of docs/results.md about sparse kernels."""

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.int8_text import NAMES
from benchmarks.rows import Row
from benchmarks.tables import table, text

PRUNED = {"resnet20": "ResNet20", "wide-resnet": "small ResNet, 80 to 320 channels"}


def sections(results: Mapping[str, Any]) -> Iterable[str]:
    """Time beside dense onnxruntime: zeros at random places, then networks that were pruned."""
    about, rows = results.get("kernels"), results.get("kernels_pruned", {}).get("rows", [])
    if about is None and not rows:
        return
    yield "## Sparse kernels\n"
    if about is not None:
        yield from by_sparsity(about)
    if rows:
        yield from pruned(rows)


def by_sparsity(about: Mapping[str, Any]) -> Iterable[str]:
    """Networks of full size."""
    machine, version = about["machine"], about["versions"]["onnxruntime"]
    yield text(
        f"Time on our sparse kernels / time of the dense network, both in onnxruntime {version} on",
        f"{machine['processor']} ({machine['path']} unless another path is named), in turns; medians, and the ratio",
        "of the shortest times in brackets. Zeros are at random places, the same share of every kernel; MobileNetV2",
        "has them in its pointwise layers. One sample on one thread unless said. A session is what onnxruntime makes",
        "of the file: seconds of the processor and bytes, beside a session of the dense network.",
    )
    lines = []
    for row in about["rows"]:
        network, *how = row["plan"].split(" ", 1)
        times = (
            f"{row['dense_ms']:.1f}",
            f"{row['ms']:.1f}",
            f"{row['ratio']:.3f} ({row['ratio_of_shortest']:.3f})",
        )
        made = (
            f"{row['session_ratio']:.2f}",
            f"{row['session_bytes'] / row['dense_session_bytes']:.2f}",
        )
        lines.append(
            [NAMES[network], *(how or ["single weights"]), f"{row['sparsity']:.0%}", *times, *made]
        )
    head = (
        "network",
        "how",
        "zeros",
        "dense, ms",
        "sparse, ms",
        "ratio",
        "session, time",
        "session, memory",
    )
    yield from table(head, lines)
    for row in about["rows"]:
        if several := row.get("ratios_of_processes"):
            spread = f"from {min(several):.3f} to {max(several):.3f}"
            yield text(f"{row['plan']}: the middle one of {len(several)} processes, {spread}.")
    for name, reason in about["skipped"].items():
        yield text(f"{name}: {reason}.")


def pruned(rows: Iterable[Row]) -> Iterable[str]:
    """Layers as pruning leaves them."""
    yield text(
        "Networks that were really pruned, for a few epochs only: their accuracy means nothing, but their layers are",
        "as uneven as pruning makes them. *Left* is the share of the multiply-adds; *kept* is that of weights, from",
        "the layer that keeps the fewest to the one that keeps the most. One sample on one thread.",
    )
    lines = []
    for row in rows:
        kept = " to ".join(f"{share:.1%}" for share in row["kept_by_layers"])
        times = f"{row['dense_ms']:.2f}", f"{row['ms']:.2f}", f"{row['ratio']:.2f}"
        named = PRUNED[row["cell"]], f"{row['compression']:g}×", row["block"] or "single weights"
        lines.append([*named, f"{row['multiply_adds_left']:.3f}", kept, *times])
    yield from table(
        ("network", "target", "how", "left", "kept", "dense, ms", "sparse, ms", "ratio"), lines
    )
