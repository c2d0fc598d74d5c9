"""Ways to spoil any file of a data set: its bytes, its name, and whether it is a file at all."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.model_mutants import spoil_bytes

Mutant = Callable[[Path, random.Random], None]  # the data set, which it changes in place
NAMES = (
    b"\xff\xfe",
    b"new\nline",
    b"\x1b[31mred",
    b"n" * 200,
    "…\u202e".encode(),
    b"<b>&amp;",
    b"..",
    b"'\"`$(x)",
)


def files_of(path: Path) -> list[Path]:
    """Every file of a data set."""
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


def some(path: Path, rng: random.Random) -> Path:
    """One of them."""
    return rng.choice(files_of(path))


def spoiled_bytes(path: Path, rng: random.Random) -> None:
    file = some(path, rng)
    file.write_bytes(spoil_bytes(file.read_bytes(), rng))


def cut_short(path: Path, rng: random.Random) -> None:
    file = some(path, rng)
    content = file.read_bytes()
    file.write_bytes(content[: rng.randrange(len(content))])


def swapped(path: Path, rng: random.Random) -> None:
    other = rng.choice(
        [
            b"",
            b"\0" * 600,
            b"PK\x05\x06" + b"\0" * 18,
            gzip.compress(b"x"),
            b"\x93NUMPY",
            b"[1, 2]",
            b"x,y\n1,2\n",
        ]
    )
    some(path, rng).write_bytes(other)


def long_with_holes(path: Path, rng: random.Random) -> None:
    os.truncate(some(path, rng), rng.choice((2**33, 2**40)))


def no_regular_file(path: Path, rng: random.Random) -> None:
    """A pipe, a socket, a device, a folder or a link that leads nowhere, in place of a file."""
    file = some(path, rng)
    file.unlink()
    kind = rng.choice(("pipe", "socket", "zero", "tty", "loop", "gone", "folder", "passwd"))
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "socket":
        before = Path.cwd()
        os.chdir(file.parent)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(file.name)
        os.chdir(before)
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to(
            {
                "zero": "/dev/zero",
                "tty": "/dev/tty",
                "loop": file.name,
                "gone": "gone",
                "passwd": "/etc/passwd",
            }[kind]
        )


def odd_name(path: Path, rng: random.Random) -> None:
    file = some(path, rng)
    if file != path:
        file.rename(
            os.fsdecode(
                os.fsencode(file.parent) + b"/" + rng.choice(NAMES) + os.fsencode(file.name)
            )
        )


def linked(path: Path, rng: random.Random) -> None:
    """A file, or all, moved away with links in their place."""
    aside = path.parent / "aside"
    aside.mkdir()
    for nth, file in enumerate(files_of(path) if rng.random() < 0.5 else [some(path, rng)]):
        file.rename(aside / f"{nth}{file.suffix}")
        file.symlink_to(aside / f"{nth}{file.suffix}")


def twice(path: Path, rng: random.Random) -> None:
    file = some(path, rng)
    shutil.copy(file, file.with_name("train-" + file.name))


ANY: tuple[Mutant, ...] = (
    spoiled_bytes,
    spoiled_bytes,
    cut_short,
    swapped,
    long_with_holes,
    no_regular_file,
    no_regular_file,
    odd_name,
    linked,
    twice,
)
