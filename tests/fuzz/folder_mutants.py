"""Ways to spoil a run directory: its bytes, whose files they are, what its JSON says, what lies in the place of a file.

A mutant changes a run in place and says how the same command may end.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file

from ltp_pipeline.run_directory.manifest import add_hash
from ltp_pipeline.system.hashing import sha256_file

MANIFEST, TRAIL, LOG = "manifest.json", "trail/trail.json", "log.jsonl"
DEEP = 100_000


class Case(NamedTuple):
    """What was done; whether `--fresh` is a way out, and whether what comes of it must be the same to the byte."""

    name: str
    exits: tuple[int, ...] = (0, 3)
    fresh: bool = True
    same: bool = True


Mutant = Callable[[Path, random.Random, Path], Case]  # of a run, and another run to take from


def kept(run: Path) -> list[str]:
    """The files that going on may read."""
    found = [
        path
        for kind in ("state", "weights", "trail")
        for path in run.glob(f"{kind}/*")
        if path.suffix != ".txt"
    ]
    return sorted([*(path.relative_to(run).as_posix() for path in found), MANIFEST])


def flipped(run: Path, rng: random.Random, _: Path) -> Case:
    """A bit is another."""
    name = rng.choice(kept(run))
    content = bytearray((run / name).read_bytes())
    at, bit = rng.randrange(len(content)), rng.randrange(8)
    content[at] ^= 1 << bit
    (run / name).write_bytes(content)
    return Case(f"bit {bit} of byte {at} of {name} flipped")


def truncated(run: Path, rng: random.Random, _: Path) -> Case:
    """The end is missing, or there is more."""
    name = rng.choice(kept(run))
    content = (run / name).read_bytes()
    length = rng.choice((0, rng.randrange(len(content)), len(content) - 1, len(content) + 7))
    (run / name).write_bytes((content + bytes(7))[:length])
    return Case(f"{name} cut to {length} of {len(content)} bytes")


def swapped(run: Path, rng: random.Random, _: Path) -> Case:
    """Two files in each other's place."""
    names = [name for name in kept(run) if name != MANIFEST]
    one, two = rng.sample(names, 2) if len(names) > 1 else (MANIFEST, names[0])
    first, second = (run / one).read_bytes(), (run / two).read_bytes()
    (run / one).write_bytes(second)
    (run / two).write_bytes(first)
    return Case(f"{one} and {two} swapped")


def of_another(run: Path, rng: random.Random, other: Path) -> Case:
    """Files of another run, the manifest too or not."""
    names = [name for name in kept(run) if (other / name).is_file()]
    chosen = rng.sample(names, rng.randrange(1, min(4, len(names)) + 1))
    for name in chosen:
        shutil.copy(other / name, run / name)
    return Case(f"{', '.join(chosen)} of another run")


def missing(run: Path, rng: random.Random, _: Path) -> Case:
    """A file or a folder is gone."""
    name = rng.choice([*kept(run), "state", "weights", "trail", LOG])
    if (run / name).is_dir():
        shutil.rmtree(run / name)
        return Case(f"{name} gone")
    (run / name).unlink(missing_ok=True)
    # Without a manifest it is a foreign folder, whose content stays
    return Case(f"{name} gone", fresh=name != MANIFEST)


def not_finite(run: Path, rng: random.Random, _: Path) -> Case:
    """A value is NaN or infinite."""
    name = _spoil_tensors(run, rng)
    return Case(f"a value of {name} not finite")


def forged(run: Path, rng: random.Random, other: Path) -> Case:
    """The same or a file of another run, with hashes to match: no byte is promised then, a clean end is."""
    name = rng.choice([name for name in kept(run) if (other / name).is_file() and name != MANIFEST])
    kind = rng.choice(("of another run", "not finite", "cut"))
    if kind == "of another run":
        shutil.copy(other / name, run / name)
    elif kind == "not finite":
        name = _spoil_tensors(run, rng)
    else:
        (run / name).write_bytes((run / name).read_bytes()[:-3])
    content = _manifest(run)
    content["files"][name] = sha256_file(run / name)
    (run / MANIFEST).write_text(json.dumps(add_hash(content)))
    return Case(f"{name} {kind}, with its hash", exits=(0, 3, 5), same=False)


def any_manifest(run: Path, rng: random.Random, _: Path) -> Case:
    """A value of the manifest is anything, with the right hash or without."""
    content = _manifest(run)
    place, key = _place(content, rng)
    value = _anything(rng)
    place[key] = value
    is_sealed = rng.random() < 0.6
    (run / MANIFEST).write_text(json.dumps(add_hash(content) if is_sealed else content))
    case = Case(
        f"manifest: {key!r} is {json.dumps(value)[:60]}{', sealed' if is_sealed else ''}",
        same=not is_sealed,
    )
    return case._replace(exits=(0, 3, 5)) if is_sealed else case


def any_json(run: Path, rng: random.Random, _: Path) -> Case:
    """A file of JSON is other JSON, or none."""
    name = rng.choice((MANIFEST, TRAIL))
    texts = (
        "",
        "{}",
        "[]",
        "null",
        "3",
        '"x"',
        "[" * DEEP,
        '{"a":' * DEEP,
        "[1,",
        "1" * 5000,
        "NaN",
        '{"a":1,"a":2}',
    )
    content = rng.choice(
        (
            *(text.encode() for text in texts),
            rng.randbytes(300),
            json.dumps(_anything(rng)).encode(),
        )
    )
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_bytes(content)
    return Case(f"{name} is {content[:30]!r}")


def any_log(run: Path, rng: random.Random, _: Path) -> Case:
    """The log is anything."""
    old = (run / LOG).read_bytes() if (run / LOG).is_file() else b""
    line = json.dumps(
        {"stage": "learn", "key": "learn", "step": _anything(rng), "loss": _anything(rng)}
    ).encode()
    content = rng.choice(
        (
            rng.randbytes(500),
            b"[" * DEEP,
            old[:-9],
            old + line,
            line,
            b"\0" * 100,
            b"[1]\n3\nnull\n",
        )
    )
    (run / LOG).write_bytes(content)
    return Case(f"log is {content[:30]!r}", exits=(0,))


def no_file(run: Path, rng: random.Random, _: Path) -> Case:
    """A folder, a pipe or a link stands in the place of a file or folder."""
    name = rng.choice(
        [*kept(run), LOG, ".lock", "state", "trail", "weights", "model.sparse.onnx", "report.json"]
    )
    kind = rng.choice(("folder", "pipe", "dangling link", "link in a circle"))
    path = run / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path if kind == "link in a circle" else run / "nowhere")
    return Case(f"a {kind} in the place of {name}", fresh=False)


def read_only(run: Path, rng: random.Random, _: Path) -> Case:
    """Files and folders may not be written; root may all the same."""
    chosen = rng.sample([run, *(path for path in run.rglob("*") if not path.is_symlink())], 3)
    for path in chosen:
        path.chmod(0o500 if path.is_dir() else 0o400)
    return Case(f"read-only: {', '.join(path.name for path in chosen)}", fresh=False)


def left_behind(run: Path, rng: random.Random, _: Path) -> Case:
    """What a kill left beside the names that files were to have."""
    name = rng.choice(kept(run))
    (run / name).with_name(f".{Path(name).name}.a1b2c3d4").write_bytes(rng.randbytes(100))
    return Case(f"half of {name} left behind", exits=(0,))


MUTANTS: tuple[Mutant, ...] = (
    flipped,
    any_manifest,
    swapped,
    no_file,
    truncated,
    any_log,
    of_another,
    any_json,
    not_finite,
    missing,
    flipped,
    forged,
    left_behind,
    read_only,
)


def _spoil_tensors(run: Path, rng: random.Random) -> str:
    path = rng.choice(sorted(run.glob("state/*.safetensors")))
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        meta = json.loads(file.read(size)).get("__metadata__")
    tensors = load_file(path)
    name = rng.choice(sorted(n for n, t in tensors.items() if t.is_floating_point() and t.numel()))
    tensors[name] = torch.full_like(tensors[name], rng.choice((torch.nan, torch.inf)))
    save_file(tensors, path, meta)
    return path.relative_to(run).as_posix()


def _manifest(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / MANIFEST).read_text())
    return found


def _place(content: dict[str, Any], rng: random.Random) -> tuple[dict[str, Any], str]:
    """A key at any depth."""
    place = content
    while True:
        key = rng.choice([*place, "other"])
        inner = place.get(key)
        if not isinstance(inner, dict) or not inner or rng.random() < 0.3:
            return place, key
        place = inner


def _anything(rng: random.Random, depth: int = 0) -> Any:
    plain = (
        None,
        True,
        0,
        -1,
        1e308,
        2**70,
        0.5,
        "",
        "x",
        "3",
        "\u202e\n",
        "n" * 5000,
        "/etc/passwd",
        "..",
        "0" * 64,
    )
    kind = rng.randrange(4 if depth < 3 else 2)
    if kind < 2:
        return rng.choice(plain)
    if kind == 2:
        return [_anything(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {
        rng.choice(("a", "", "sha256", "path")): _anything(rng, depth + 1)
        for _ in range(rng.randrange(3))
    }
