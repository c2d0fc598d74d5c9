"""The same model at two times: what got better, what got worse, and whether that is too much."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.gates import ROUNDING, Verdict
from ltp_pipeline.lookup import get


@dataclass(frozen=True)
class Change:
    """One measurement in both reports; `better` is None when nothing changed or a side is missing."""

    name: str
    old: float | None
    new: float | None
    better: bool | None

    @property
    def line(self) -> str:
        """Old, new and the word for it in one line."""
        word = {True: "better", False: "worse", None: "same"}[self.better]
        if self.old is None or self.new is None:
            word = "not measured in both"
        show = _show if self.name in NO_SHARES else _show_share  # six digits: one of 50,000 samples makes 0.002 %
        return f"{self.name}: {show(self.old)} → {show(self.new)}, {word}"


@dataclass(frozen=True)
class Comparison:
    """All changes, the verdicts on those with a limit, and what makes the two hard to compare."""

    changes: tuple[Change, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]


def compare(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    max_drop: float | None = None,
    max_compression_loss: float | None = None,
    max_growth: float | None = None,
    different_models: bool = False,
) -> Comparison:
    """Compare two reports; limits are the largest loss of top-1, and of compression and size as a share of the old."""
    hashes = [get(report, "model", "sha256") for report in (old, new)]
    if not different_models and hashes[0] != hashes[1]:
        names = " and ".join(str(get(report, "model", "name") or get(report, "model", "path")) for report in (old, new))
        what = f"the reports are about different models: {names}, with other hashes"
        raise InputError(what, "give two reports of one model, or --different-models to compare all the same")
    limits = {"max_drop": max_drop, "max_compression_loss": max_compression_loss, "max_growth": max_growth}
    for name, limit in limits.items():
        if limit is not None and not (-1 <= limit < 1 or (name == "max_growth" and limit >= 1)):
            raise InputError(f"{name} of {limit:g} is no fraction", f"if {limit:g} % is meant, give {limit / 100:g}")
    metric = str(new.get("metric", "top-1"))
    comparable = old.get("metric", "top-1") == metric
    changes = {name: _change(name, _measure(old, name), _measure(new, name)) for name in MORE_IS_BETTER}
    losses = {
        "max_drop": _loss(changes["top-1"]),
        "max_compression_loss": _loss(changes["compression"], relative=True),
        "max_growth": _growth(changes["smallest file, bytes"]),
    }
    if not comparable:
        losses["max_drop"] = None  # right answers and nearness to an original are not comparable
    verdicts = []
    for name, limit in limits.items():
        if limit is not None:
            loss = losses[name]
            passed = loss is not None and loss <= limit + ROUNDING
            told = ("", "") if passed else ("" if loss is not None else NOT_BOTH, _advice(old, new, loss))
            verdicts.append(Verdict(name, limit, loss, passed, *told))
    found = [c for c in changes.values() if comparable or not c.name.endswith(("top-1", "drop"))]
    shown = [replace(c, name=c.name.replace("top-1", metric)) for c in found]
    return Comparison(tuple(shown), tuple(verdicts), tuple(_notes(old, new)))


MOST_TOLD = 3  # differences between two runs
NOT_BOTH = "not measured in both reports"
NO_SHARES = ("compression", "model compression", "smallest file, bytes", "fastest file, ms")
MORE_IS_BETTER = {
    "original top-1": True,
    "top-1": True,
    "drop": False,
    "compression": True,
    "model compression": True,
    "sparsity": True,
    "baseline top-1": True,
    "smallest file, bytes": False,
    "fastest file, ms": False,
}


def _measure(report: Mapping[str, Any], name: str) -> float | None:
    part = {"original top-1": "original", "baseline top-1": "baseline"}.get(name, "pruned")
    found = report.get(part) or {}
    if name.endswith("top-1"):
        value = (found.get("accuracy") or {}).get("top1")
    elif name.endswith(("bytes", "ms")):
        key = "bytes" if name.endswith("bytes") else "latency_ms"
        value = min((f[key] for f in found.get("files") or [] if f.get(key) is not None), default=None)
    else:
        value = found.get(name.replace(" ", "_"))
    return None if value is None else float(value)


def _change(name: str, old: float | None, new: float | None) -> Change:
    if old is None or new is None or abs(new - old) <= ROUNDING:
        return Change(name, old, new, None)
    return Change(name, old, new, (new > old) == MORE_IS_BETTER[name])


def _loss(change: Change, relative: bool = False) -> float | None:
    if change.old is None or change.new is None:
        return None
    return (change.old - change.new) / (change.old if relative else 1)


def _growth(change: Change) -> float | None:
    return None if not change.old or change.new is None else change.new / change.old - 1


def _advice(old: Mapping[str, Any], new: Mapping[str, Any], loss: float | None) -> str:
    """What differs between the two runs, above all in their settings."""
    if loss is None:
        return "give two reports that both measured it, in the same metric"
    before, after = (_flat({**_of_run(r), "versions": get(r, "environment", "versions")}) for r in (old, new))
    changed = [f"{k} was {_show(before.get(k))}, is {_show(v)}" for k, v in after.items() if before.get(k) != v]
    if not changed:
        return "settings and versions are the same: look at the layers of both report.html, or try another train.seed"
    return f"look at what changed: {'; '.join(changed[:MOST_TOLD])}{' …' if changed[MOST_TOLD:] else ''}"


def _of_run(report: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that an outcome depends on."""
    settings = get(report, "settings")
    return {k: v for k, v in settings.items() if k not in ("gates", "log")} if isinstance(settings, Mapping) else {}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _notes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    def both(what: str, *keys: str) -> str | None:
        values: list[Any] = [old, new]
        for key in keys:
            values = [v.get(key) if isinstance(v, Mapping) else None for v in values]
        return None if values[0] == values[1] else f"{what}: {_show(values[0])} before, {_show(values[1])} now"

    found = [
        both("another original model", "model", "sha256"),
        both("another number of test samples", "original", "accuracy", "samples"),
        both("another split", "original", "accuracy", "split"),
        both("another metric", "metric"),
        both("another device", "environment", "device"),
        both("another number of threads", "environment", "threads"),
    ]
    return [note for note in found if note]


def _show_share(value: float | None) -> str:
    return "none" if value is None else f"{100 * value:.6g} %"


def _show(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
