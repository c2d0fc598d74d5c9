"""Mutants of a finished run: report.json, SHA256SUMS, the files, and the limits of the gate.

A mutant changes the folder of a run whose gate fails, and returns the exit codes that are allowed:
never 0, unless nothing was lost.
"""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ltp_pipeline.system.hashing import sha256_file, write_checksums

REPORT, SUMS = "report.json", "SHA256SUMS"
REFUSED, FAILED, EITHER = (3,), (7,), (3, 7)
# Each of these fails on the run that tests/support/finished.py lays out
MISSED: list[list[str]] = [
    ["--max-drop", "0.004"],
    ["--max-drop", "0.008", "--confidence", "0.95"],
    ["--min-accuracy", "0.914"],
    ["--min-accuracy", "0.91", "--confidence", "0.99"],
    ["--min-compression", "100"],
    ["--min-sparsity", "0.99"],
    ["--min-model-compression", "50"],
    ["--max-bytes", "1000"],
    ["--max-bytes", "packed=1000"],
    ["--max-latency-ratio", "0.9"],
    ["--min-layer-density", "0.5"],
    ["--beat-baseline", "--baseline-margin", "0.02"],
    ["--min-gain", "5"],
]
KEPT = ["--max-drop", "0.01", "--min-compression", "5"]  # and these hold


class ReportCase(NamedTuple):
    """A changed run: what was done, the options of the gate, and the expected exit codes."""

    name: str
    options: list[str]
    exits: tuple[int, ...]
    verb: str = "gate"


Mutant = Callable[[Path, random.Random], ReportCase]


def read_report(folder: Path) -> dict[str, Any]:
    """Read the report of a folder."""
    report: dict[str, Any] = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    return report


def write_report(folder: Path, report: dict[str, Any] | str) -> None:
    """Write a report and the list of hashes, as somebody who edits reports would."""
    text = report if isinstance(report, str) else json.dumps(report)
    (folder / REPORT).write_text(text, encoding="utf-8")
    if (folder / SUMS).is_file():
        lines = [
            line.split("  ", 1) for line in (folder / SUMS).read_text(encoding="utf-8").splitlines()
        ]
        sums = {name: digest for digest, name in lines}
        write_checksums(folder / SUMS, {**sums, REPORT: sha256_file(folder / REPORT)})


def choose_path(report: Any, rng: random.Random, leaf: bool = False) -> tuple[Any, ...]:
    """Choose a path in the report; with `leaf`, one that is not a list or an object."""
    path: tuple[Any, ...] = ()
    value = report
    while isinstance(value, dict | list) and value and (leaf or not path or rng.random() < 0.75):
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        path, value = (*path, key), value[key]
    return path


def get_value(report: Any, path: tuple[Any, ...]) -> Any:
    """Return the value at a path."""
    for key in path:
        report = report[key]
    return report


def set_value(report: Any, path: tuple[Any, ...], value: Any) -> None:
    """Set the value at a path."""
    get_value(report, path[:-1])[path[-1]] = value


def format_path(path: tuple[Any, ...]) -> str:
    """Return a path as text."""
    return ".".join(map(str, path))


def _make_case(name: str, rng: random.Random) -> ReportCase:
    """Make a case of `gate`, which must not pass, or of a command that may accept or reject the report."""
    verb = rng.choice(("gate", "gate", "gate", "compare", "report"))
    return (
        ReportCase(name, rng.choice(MISSED), EITHER)
        if verb == "gate"
        else ReportCase(name, [], (0, 3), verb)
    )


ODD_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        "",
        "0.5",
        [],
        {},
        [0.5],
        {"value": 1},
        0,
        1,
        -1,
        2,
        0.5,
        1e-9,
        -1e-9,
        88,
        1e9,
        1e300,
        -1e300,
    ),
    *(
        2**62,
        2**63,
        10**30,
        "../report.json",
        "\u0000",
        "\ud800",
        "é" * 300,
        "passed",
        "exact",
        "int8",
        "model.onnx",
    ),
)


def change_value(folder: Path, rng: random.Random) -> ReportCase:
    """Change one value of the report."""
    report = read_report(folder)
    path = choose_path(report, rng, leaf=True)
    old = get_value(report, path)
    if isinstance(old, int | float) and not isinstance(old, bool) and rng.random() < 0.6:
        factor = rng.choice((0, 0.5, 0.9, 0.999, 1.001, 1.1, 2, 100, -1))
        value: Any = type(old)(old * factor)
    else:
        value = rng.choice(ODD_VALUES)
    set_value(report, path, value)
    write_report(folder, report)
    return _make_case(f"{format_path(path)} = {value!r}", rng)


def drop_value(folder: Path, rng: random.Random) -> ReportCase:
    """Drop a key or an item."""
    report = read_report(folder)
    path = choose_path(report, rng)
    parent = get_value(report, path[:-1])
    del parent[path[-1]]
    write_report(folder, report)
    return _make_case(f"without {format_path(path)}", rng)


def copy_value(folder: Path, rng: random.Random) -> ReportCase:
    """Copy one value over another."""
    report = read_report(folder)
    first, second = choose_path(report, rng), choose_path(report, rng)
    set_value(report, second, copy.deepcopy(get_value(report, first)))
    write_report(folder, report)
    return _make_case(f"{format_path(second)} = {format_path(first)}", rng)


def raise_accuracy(folder: Path, rng: random.Random) -> ReportCase:
    """Raise accuracy, drop and interval together, against the counts of samples."""
    report = read_report(folder)
    value = rng.choice((0.9177, 0.92, 1.0))
    for part in (report["pruned"], *report["pruned"]["files"]):
        part["accuracy"] |= {"value": value, "top1": value, "top5": 1.0}
    report["pruned"]["drop"] = report["original"]["accuracy"]["value"] - value
    if rng.random() < 0.5:
        report["pruned"]["drop_interval"] = [
            report["pruned"]["drop"] - 0.001,
            report["pruned"]["drop"] + 0.001,
        ]
    if rng.random() < 0.3:
        for file in report["pruned"]["files"]:
            del file["paired_counts"]
        del report["pruned"]["drop_interval"]
        write_report(folder, report)
        return ReportCase(
            f"accuracy {value} and no outcomes",
            ["--max-drop", "0.01", "--confidence", "0.95"],
            EITHER,
        )
    write_report(folder, report)
    return ReportCase(f"accuracy {value} everywhere", rng.choice(MISSED), EITHER)


def _drop_derived_values(report: dict[str, Any]) -> None:
    """Drop values that would have to be computed from other counts."""
    report["sizes"].pop("raw_values_bound")
    report["model"]["macs"] = None
    for network in ("pruned", "baseline"):
        report[network]["macs_left"] = None
    for key in ("gain", "compression_at_equal_accuracy", "gain_bound", "curve"):
        report["baseline"].pop(key)
    report["gates"], report["status"] = [], "no-gates"
    report["settings"].pop("gates")


def raise_sparsity(folder: Path, rng: random.Random) -> ReportCase:
    """Raise the sparsity of layers, sums and ratios together, against the files."""
    report = read_report(folder)
    layer = rng.choice(report["layers"])
    less = rng.randint(1, layer["nonzeros"])
    layer["nonzeros"] -= less
    pruned, model = report["pruned"], report["model"]
    pruned["nonzeros"] -= less
    pruned["model_nonzeros"] -= less
    pruned["compression"] = model["layer_elements"] / pruned["nonzeros"]
    pruned["sparsity"] = 1 - pruned["nonzeros"] / model["layer_elements"]
    pruned["model_compression"] = model["float_elements"] / pruned["model_nonzeros"]
    for file in pruned["files"]:
        file["nonzeros"] = pruned["nonzeros"]
    _drop_derived_values(report)
    write_report(folder, report)
    return ReportCase(f"{layer['name']} with {less} nonzeros fewer", KEPT, REFUSED)


def drop_layers(folder: Path, rng: random.Random) -> ReportCase:
    """Drop the densest layers from the report and all sums."""
    report = read_report(folder)
    gone = report["layers"].pop(rng.randrange(len(report["layers"])))
    model = report["model"]
    model["num_layers"] -= 1
    model["layer_elements"] -= gone["elements"]
    for name, key in (("pruned", "nonzeros"), ("baseline", "baseline_nonzeros")):
        part = report[name]
        part["nonzeros"] -= gone[key]
        part["compression"] = model["layer_elements"] / part["nonzeros"]
        part["sparsity"] = 1 - part["nonzeros"] / model["layer_elements"]
        for file in part["files"]:
            file["nonzeros"] = part["nonzeros"]
    _drop_derived_values(report)
    write_report(folder, report)
    return ReportCase(f"without kernel {gone['name']}", KEPT, REFUSED)


def drop_limits(folder: Path, rng: random.Random) -> ReportCase:
    """Drop the limits of the report and pass none."""
    report = read_report(folder)
    limits = report["settings"]["gates"]
    odd = [
        ("max_drop", 5),
        ("max_drop", "0.01"),
        ("min_accuracy", 90),
        ("max_drpo", 0.01),
        ("confidence", 95),
    ]
    odd += [
        ("confidence", 1 - 1e-16),
        ("min_compression", True),
        ("max_bytes", {"no": 5}),
        ("max_bytes", -1),
    ]
    odd += [
        ("min_sparsity", 1.5),
        ("baseline_margin", 0.1),
        ("beat_baseline", "yes"),
        ("min_gain", 0),
        ("max_drop", [0.01]),
    ]
    key, value = rng.choice(odd)
    limits[key] = value
    write_report(folder, report)
    return ReportCase(f"settings.gates.{key} = {value!r}", [], REFUSED)


def change_status(folder: Path, rng: random.Random) -> ReportCase:
    """Change gates and status, against the limits."""
    report = read_report(folder)
    ways: dict[str, Callable[[], Any]] = {
        "no gates": lambda: report.update(gates=[]),
        "a gate more": lambda: report["gates"].append(
            {**report["gates"][0], "name": "min_gain", "passed": False}
        ),
        "another value": lambda: report["gates"][0].update(value=0.0),
        "another limit": lambda: report["gates"][0].update(limit=1.0),
        "failed": lambda: report.update(status="failed"),
        "not judged": lambda: report.update(status="no-gates"),
        "one failed": lambda: report["gates"][0].update(passed=False),
        "stricter limits": lambda: report["settings"]["gates"].update(min_compression=1000.0),
    }
    name = rng.choice(sorted(ways))
    ways[name]()
    write_report(folder, report)
    return ReportCase(name, KEPT, REFUSED)


def change_text(folder: Path, rng: random.Random) -> ReportCase:
    """Replace the report by ambiguous JSON or other text."""
    had = (folder / REPORT).read_text(encoding="utf-8")
    bombs = {
        "a key twice": had.replace('"pruned":', '"pruned": {}, "pruned":', 1),
        "a key twice deep inside": had.replace('"drop":', '"drop": 0, "drop":', 1),
        "400 digits": had.replace('"drop":', '"drop": ' + "0." + "3" * 400 + ', "x":', 1),
        "5000 digits": had.replace('"drop":', '"more": ' + "9" * 5000 + ', "drop":', 1),
        "-0.0": had.replace('"drop":', '"more": -0.0, "drop":', 1),
        "NaN": had.replace('"drop":', '"drop": NaN, "x":', 1),
        "1e400": had.replace('"drop":', '"more": 1e400, "drop":', 1),
        "deep": had.replace('"drop":', '"more": ' + "[" * 100_000 + "]" * 100_000 + ', "drop":', 1),
        "deep, and below the limit of recursion": had.replace(
            '"drop":', f'"more": {"[" * 300}{"]" * 300}, "drop":', 1
        ),
        "half a character": had.replace('"drop":', '"more": "\\ud800", "drop":', 1),
        "cut off": had[: rng.randrange(len(had))],
        "more behind it": had + rng.choice(("x", "{}", "]", "\0")),
        "empty": "",
        "a list": f"[{had}]",
        "another schema": had.replace(
            "ltp-report/1", rng.choice(("ltp-report/2", "ltp-report/", "x")), 1
        ),
    }
    name = rng.choice(sorted(bombs))
    write_report(folder, bombs[name])
    return ReportCase(name, KEPT, REFUSED)


def corrupt_report(folder: Path, rng: random.Random) -> ReportCase:
    """Change bytes of the report."""
    content = bytearray((folder / REPORT).read_bytes())
    for _ in range(rng.choice((1, 1, 5, 50))):
        content[rng.randrange(len(content))] = rng.randrange(256)
    (folder / REPORT).write_bytes(content)
    return ReportCase("bytes", rng.choice(MISSED), EITHER)


def change_file_name(folder: Path, rng: random.Random) -> ReportCase:
    """Change the name of a file in the report."""
    report = read_report(folder)
    places = [
        report["pruned"]["files"][0],
        report["baseline"]["files"][0],
        report["baseline"]["curve"][1],
    ]
    odd = (
        "",
        ".",
        "..",
        "../x",
        "a/../../x",
        "/etc/passwd",
        "x" * 300,
        "a/" * 700 + "a",
        "a\0b",
        "a\nb",
        "\\\\host\\x",
    )
    name = rng.choice(odd)
    rng.choice(places)["path"] = name
    write_report(folder, report)
    return ReportCase(f"the name {name[:20]!r}", KEPT, REFUSED)


def replace_file(folder: Path, rng: random.Random) -> ReportCase:
    """Remove or replace an exported file."""
    named = [name for file in read_report(folder)["pruned"]["files"] for name in _list_parts(file)]
    path = folder / rng.choice(named)
    other = folder / rng.choice([name for name in named if name != path.name])
    ways: dict[str, Callable[[], Any]] = {
        "gone": lambda: None,
        "a folder": path.mkdir,
        "a pipe": lambda: os.mkfifo(path),
        "a link to nowhere": lambda: path.symlink_to("nowhere"),
        "a link to itself": lambda: path.symlink_to(path.name),
        "a link to a device": lambda: path.symlink_to("/dev/zero"),
        "another file": lambda: shutil.copy(other, path),
        "empty": lambda: path.write_bytes(b""),
        "cut off": lambda: path.write_bytes(content[: rng.randrange(len(content))]),
        "a bit": lambda: path.write_bytes(bytes([content[0] ^ 1, *content[1:]])),
    }
    name, content = rng.choice(sorted(ways)), path.read_bytes()
    path.unlink()
    ways[name]()
    return ReportCase(f"{path.name}: {name}", KEPT, FAILED)


def _list_parts(file: dict[str, Any]) -> list[str]:
    return [file["path"], *([f"{file['path']}.data"] if file.get("data_sha256") else [])]


def replace_model(folder: Path, rng: random.Random) -> ReportCase:
    """Replace a file by another model and report its hash and size."""
    report = read_report(folder)
    file = report["pruned"]["files"][1]
    source = folder / rng.choice(("model.onnx", report["baseline"]["curve"][1]["path"]))
    shutil.copy(source, folder / file["path"])
    file |= {"sha256": sha256_file(folder / file["path"]), "bytes": source.stat().st_size}
    report["sizes"].pop(file["encoding"])
    write_report(folder, report)
    return ReportCase(f"{file['path']} is {source.name}", KEPT, EITHER)


def change_hidden_data(folder: Path, rng: random.Random) -> ReportCase:
    """Change the data of a file and drop their hash from the report."""
    report = read_report(folder)
    file = report["pruned"]["files"][0]
    path, data = folder / file["path"], folder / f"{file['path']}.data"
    content = bytearray(data.read_bytes())
    content[rng.randrange(len(content))] ^= 1
    data.write_bytes(content)
    del file["data_sha256"]
    file["bytes"] = path.stat().st_size
    report["sizes"].pop(file["encoding"])
    if (folder / SUMS).is_file():
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
        (folder / SUMS).write_text(
            "".join(f"{line}\n" for line in lines if not line.endswith(".data"))
        )
    write_report(folder, report)
    return ReportCase("weights without a hash", KEPT, REFUSED)


def replace_by_text(folder: Path, rng: random.Random) -> ReportCase:
    """Replace a file by text and report its hash and size."""
    report = read_report(folder)
    file = report["pruned"]["files"][1]
    path = folder / file["path"]
    content = path.read_bytes()
    start = rng.randrange(len(content))
    path.write_bytes(rng.choice((b"", b"\0" * 100, content[:start], content[start:], b"x" * 1000)))
    file |= {"sha256": sha256_file(path), "bytes": path.stat().st_size}
    report["sizes"].pop(file["encoding"])
    write_report(folder, report)
    return ReportCase(f"{file['path']} is no model", rng.choice(MISSED), EITHER)


def change_hash_list(folder: Path, rng: random.Random) -> ReportCase:
    """Change the list of hashes."""
    path = folder / SUMS
    lines = path.read_text(encoding="utf-8").splitlines()
    chosen = rng.choice((REPORT, "model.packed.onnx"))
    number = next(i for i, line in enumerate(lines) if line.endswith(f"  {chosen}"))
    ways: dict[str, Callable[[], Any]] = {
        "another hash": lambda: path.write_text(
            "\n".join([*lines[:number], f"{'0' * 64}{lines[number][64:]}"])
        ),
        "a line less": lambda: path.write_text("\n".join(lines[:number] + lines[number + 1 :])),
        "no list": lambda: path.write_bytes(b"\xff" * 50),
        "empty": lambda: path.write_text(""),
        "a folder": lambda: (path.unlink(), path.mkdir()),
        "a pipe": lambda: (path.unlink(), os.mkfifo(path)),
        "a link to nowhere": lambda: (path.unlink(), path.symlink_to("nowhere")),
    }
    name = rng.choice(sorted(ways))
    ways[name]()
    return ReportCase(f"{SUMS}: {name}", KEPT, FAILED)


def replace_report_by_other_kind(folder: Path, rng: random.Random) -> ReportCase:
    """Replace the report by a folder, pipe or link."""
    path = folder / REPORT
    path.unlink()
    ways: dict[str, Callable[[], Any]] = {
        "a folder": path.mkdir,
        "a pipe": lambda: os.mkfifo(path),
        "a link to nowhere": lambda: path.symlink_to("nowhere"),
        "a device": lambda: path.symlink_to("/dev/zero"),
        "large": lambda: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 30),
    }
    name = rng.choice(sorted(ways))
    ways[name]()
    return ReportCase(f"{REPORT}: {name}", KEPT, REFUSED)


def pass_bad_limits(folder: Path, rng: random.Random) -> ReportCase:
    """Pass limits that mean nothing."""
    number = rng.choice(
        (
            "nan",
            "inf",
            "-inf",
            "1e400",
            "9" * 5000,
            "0x10",
            "",
            "1,5",
            "-1e400",
            "٣",
            "1" + "0" * 400,
        )
    )
    gate = rng.choice(
        (
            "max-drop",
            "min-accuracy",
            "min-sparsity",
            "min-compression",
            "max-bytes",
            "confidence",
            "baseline-margin",
        )
    )
    odd = [f"--{gate}", number]
    exact = [
        ["--confidence", "0.9999999999999999"],
        ["--confidence", "1"],
        ["--confidence", "0"],
        ["--max-drop", "5"],
    ]
    exact += [
        ["--min-accuracy", "91"],
        ["--min-sparsity", "1"],
        ["--max-bytes", "int9=5"],
        ["--max-latency-ratio", "-1"],
    ]
    chosen = rng.choice([odd, odd, *exact])
    return ReportCase(" ".join(part[:30] for part in chosen), chosen, (2, 3))


def pass_bad_settings(folder: Path, rng: random.Random) -> ReportCase:
    """Pass a settings file that is not valid or takes long to read."""
    path = folder / "gates.toml"
    bombs = {
        "5000 digits": "[gates]\nmax_drop = " + "9" * 5000,
        "400 digits": "[gates]\nmin_compression = " + "9" * 400,
        "hexadecimal": "[gates]\nmin_compression = 0x" + "f" * 5000,
        "too large": "[gates]\nmax_drop = 1e400",
        "arrays": "a = " + "[" * 10_000,
        "tables": "a = " + "{a=" * 10_000,
        "dots": ".".join("a" * 20_000) + " = 1",
        "quoted dots": ".".join(['"="'] * 20_000) + " = 1",
        "a table of dots": f"[{'.'.join('a' * 50_000)}]",
        "large": "#" * (5 << 20),
        "not UTF-8": "\udcff",
        "unknown": "[gates]\nmax_drpo = 0.01",
        "percent": "[gates]\nmin_sparsity = 90",
    }
    name = rng.choice(sorted(bombs))
    path.write_bytes(bombs[name].encode(errors="surrogateescape"))
    return ReportCase(f"settings: {name}", ["--config", str(path)], (2, 3))


MUTANTS: tuple[Mutant, ...] = (
    *(
        change_value,
        drop_value,
        change_value,
        copy_value,
        raise_accuracy,
        raise_sparsity,
        drop_layers,
        drop_limits,
        change_status,
        change_text,
    ),
    *(
        change_value,
        corrupt_report,
        change_file_name,
        replace_file,
        replace_model,
        change_hidden_data,
        replace_by_text,
        change_hash_list,
        replace_report_by_other_kind,
    ),
    *(pass_bad_limits, pass_bad_settings),
)
