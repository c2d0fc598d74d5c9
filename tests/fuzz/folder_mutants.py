"""Mutants of a run directory: bytes, swapped files, JSON content, and kinds of files.

A mutant changes a run in place and returns how the command may end.
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


class FolderCase(NamedTuple):
    """A changed run directory and how the command may end.

    Attributes:
        name: What was done.
        exits: Exit codes that are allowed.
        fresh: True if `--fresh` must work if the command fails.
        same: True if the files must be bit-identical to those of an unchanged run.
    """

    name: str
    exits: tuple[int, ...] = (0, 3)
    fresh: bool = True
    same: bool = True


Mutant = Callable[[Path, random.Random, Path], FolderCase]  # run, random numbers, another run


def list_saved_files(run: Path) -> list[str]:
    """Return the names of the files that resuming may read."""
    content = [
        path
        for kind in ("state", "weights", "trail")
        for path in run.glob(f"{kind}/*")
        if path.suffix != ".txt"
    ]
    return sorted([*(path.relative_to(run).as_posix() for path in content), MANIFEST])


def flip_bit(run: Path, rng: random.Random, _: Path) -> FolderCase:
    """Flip a bit of a file."""
    name = rng.choice(list_saved_files(run))
    content = bytearray((run / name).read_bytes())
    at, bit = rng.randrange(len(content)), rng.randrange(8)
    content[at] ^= 1 << bit
    (run / name).write_bytes(content)
    return FolderCase(f"bit {bit} of byte {at} of {name} flipped")


def change_length(run: Path, rng: random.Random, _: Path) -> FolderCase:
    """Truncate or extend a file."""
    name = rng.choice(list_saved_files(run))
    content = (run / name).read_bytes()
    length = rng.choice((0, rng.randrange(len(content)), len(content) - 1, len(content) + 7))
    (run / name).write_bytes((content + bytes(7))[:length])
    return FolderCase(f"{name} cut to {length} of {len(content)} bytes")


def swap_files(run: Path, rng: random.Random, _: Path) -> FolderCase:
    """Swap two files."""
    names = [name for name in list_saved_files(run) if name != MANIFEST]
    one, two = rng.sample(names, 2) if len(names) > 1 else (MANIFEST, names[0])
    first, second = (run / one).read_bytes(), (run / two).read_bytes()
    (run / one).write_bytes(second)
    (run / two).write_bytes(first)
    return FolderCase(f"{one} and {two} swapped")


def copy_from_other_run(run: Path, rng: random.Random, other: Path) -> FolderCase:
    """Copy files of another run, with or without its manifest."""
    names = [name for name in list_saved_files(run) if (other / name).is_file()]
    chosen = rng.sample(names, rng.randrange(1, min(4, len(names)) + 1))
    for name in chosen:
        shutil.copy(other / name, run / name)
    return FolderCase(f"{', '.join(chosen)} of another run")


def remove_file(run: Path, rng: random.Random, _: Path) -> FolderCase:
    """Remove a file or folder."""
    name = rng.choice([*list_saved_files(run), "state", "weights", "trail", LOG])
    if (run / name).is_dir():
        shutil.rmtree(run / name)
        return FolderCase(f"{name} gone")
    (run / name).unlink(missing_ok=True)
    # Without a manifest it is a foreign folder, whose content stays
    return FolderCase(f"{name} gone", fresh=name != MANIFEST)


def store_not_finite(run: Path, rng: random.Random, _: Path) -> FolderCase:
    """Store NaN or infinity in a tensor."""
    name = _corrupt_tensors(run, rng)
    return FolderCase(f"a value of {name} not finite")


def forge_hash(run: Path, rng: random.Random, other: Path) -> FolderCase:
    """Change a file and its hash in the manifest, so that only a clean end is expected."""
    name = rng.choice(
        [name for name in list_saved_files(run) if (other / name).is_file() and name != MANIFEST]
    )
    kind = rng.choice(("of another run", "not finite", "cut"))
    if kind == "of another run":
        shutil.copy(other / name, run / name)
    elif kind == "not finite":
        name = _corrupt_tensors(run, rng)
    else:
        (run / name).write_bytes((run / name).read_bytes()[:-3])
    content = _read_manifest(run)
    content["files"][name] = sha256_file(run / name)
    (run / MANIFEST).write_text(json.dumps(add_hash(content)))
    return FolderCase(f"{name} {kind}, with its hash", exits=(0, 3, 5), same=False)


def change_manifest(run: Path, rng: random.Random, _: Path) -> FolderCase:
    """Change a value of the manifest, with or without the correct hash."""
    content = _read_manifest(run)
    place, key = _choose_key(content, rng)
    value = _make_any_value(rng)
    place[key] = value
    is_sealed = rng.random() < 0.6
    (run / MANIFEST).write_text(json.dumps(add_hash(content) if is_sealed else content))
    case = FolderCase(
        f"manifest: {key!r} is {json.dumps(value)[:60]}{', sealed' if is_sealed else ''}",
        same=not is_sealed,
    )
    return case._replace(exits=(0, 3, 5)) if is_sealed else case


def change_json(run: Path, rng: random.Random, _: Path) -> FolderCase:
    """Replace a JSON file by other JSON or text."""
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
            json.dumps(_make_any_value(rng)).encode(),
        )
    )
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_bytes(content)
    return FolderCase(f"{name} is {content[:30]!r}")


def change_log(run: Path, rng: random.Random, _: Path) -> FolderCase:
    """Replace the log."""
    old = (run / LOG).read_bytes() if (run / LOG).is_file() else b""
    line = json.dumps(
        {
            "stage": "learn",
            "key": "learn",
            "step": _make_any_value(rng),
            "loss": _make_any_value(rng),
        }
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
    return FolderCase(f"log is {content[:30]!r}", exits=(0,))


def replace_by_other_kind(run: Path, rng: random.Random, _: Path) -> FolderCase:
    """Replace a file or folder by a folder, pipe or link."""
    name = rng.choice(
        [
            *list_saved_files(run),
            LOG,
            ".lock",
            "state",
            "trail",
            "weights",
            "model.sparse.onnx",
            "report.json",
        ]
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
    return FolderCase(f"a {kind} in the place of {name}", fresh=False)


def make_read_only(run: Path, rng: random.Random, _: Path) -> FolderCase:
    """Remove the permission to write; root may write all the same."""
    chosen = rng.sample([run, *(path for path in run.rglob("*") if not path.is_symlink())], 3)
    for path in chosen:
        path.chmod(0o500 if path.is_dir() else 0o400)
    return FolderCase(f"read-only: {', '.join(path.name for path in chosen)}", fresh=False)


def add_leftovers(run: Path, rng: random.Random, _: Path) -> FolderCase:
    """Add temporary files that a killed process leaves."""
    name = rng.choice(list_saved_files(run))
    (run / name).with_name(f".{Path(name).name}.a1b2c3d4").write_bytes(rng.randbytes(100))
    return FolderCase(f"half of {name} left behind", exits=(0,))


MUTANTS: tuple[Mutant, ...] = (
    flip_bit,
    change_manifest,
    swap_files,
    replace_by_other_kind,
    change_length,
    change_log,
    copy_from_other_run,
    change_json,
    store_not_finite,
    remove_file,
    flip_bit,
    forge_hash,
    add_leftovers,
    make_read_only,
)


def _corrupt_tensors(run: Path, rng: random.Random) -> str:
    path = rng.choice(sorted(run.glob("state/*.safetensors")))
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        meta = json.loads(file.read(size)).get("__metadata__")
    tensors = load_file(path)
    name = rng.choice(sorted(n for n, t in tensors.items() if t.is_floating_point() and t.numel()))
    tensors[name] = torch.full_like(tensors[name], rng.choice((torch.nan, torch.inf)))
    save_file(tensors, path, meta)
    return path.relative_to(run).as_posix()


def _read_manifest(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / MANIFEST).read_text())
    return content


def _choose_key(content: dict[str, Any], rng: random.Random) -> tuple[dict[str, Any], str]:
    """Choose a key at any depth."""
    place = content
    while True:
        key = rng.choice([*place, "other"])
        inner = place.get(key)
        if not isinstance(inner, dict) or not inner or rng.random() < 0.3:
            return place, key
        place = inner


def _make_any_value(rng: random.Random, depth: int = 0) -> Any:
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
        return [_make_any_value(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {
        rng.choice(("a", "", "sha256", "path")): _make_any_value(rng, depth + 1)
        for _ in range(rng.randrange(3))
    }
