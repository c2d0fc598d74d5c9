"""Mutants of any file of a data set: its bytes, its name, and its kind."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.model_mutants import corrupt_bytes

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


def list_files(path: Path) -> list[Path]:
    """Return every file of a data set."""
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


def choose_file(path: Path, rng: random.Random) -> Path:
    """Choose a file of a data set."""
    return rng.choice(list_files(path))


def corrupt_content(path: Path, rng: random.Random) -> None:
    file = choose_file(path, rng)
    file.write_bytes(corrupt_bytes(file.read_bytes(), rng))


def truncate_file(path: Path, rng: random.Random) -> None:
    file = choose_file(path, rng)
    content = file.read_bytes()
    file.write_bytes(content[: rng.randrange(len(content))])


def swap_files(path: Path, rng: random.Random) -> None:
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
    choose_file(path, rng).write_bytes(other)


def make_sparse_file(path: Path, rng: random.Random) -> None:
    os.truncate(choose_file(path, rng), rng.choice((2**33, 2**40)))


def replace_by_other_kind(path: Path, rng: random.Random) -> None:
    """Replace a file by a pipe, socket, device, folder or dangling link."""
    file = choose_file(path, rng)
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


def rename_file(path: Path, rng: random.Random) -> None:
    file = choose_file(path, rng)
    if file != path:
        file.rename(
            os.fsdecode(
                os.fsencode(file.parent) + b"/" + rng.choice(NAMES) + os.fsencode(file.name)
            )
        )


def replace_by_link(path: Path, rng: random.Random) -> None:
    """Replace one file, or all, by links to it."""
    aside = path.parent / "aside"
    aside.mkdir()
    for nth, file in enumerate(
        list_files(path) if rng.random() < 0.5 else [choose_file(path, rng)]
    ):
        file.rename(aside / f"{nth}{file.suffix}")
        file.symlink_to(aside / f"{nth}{file.suffix}")


def copy_file(path: Path, rng: random.Random) -> None:
    file = choose_file(path, rng)
    shutil.copy(file, file.with_name("train-" + file.name))


ANY: tuple[Mutant, ...] = (
    corrupt_content,
    corrupt_content,
    truncate_file,
    swap_files,
    make_sparse_file,
    replace_by_other_kind,
    replace_by_other_kind,
    rename_file,
    replace_by_link,
    copy_file,
)
