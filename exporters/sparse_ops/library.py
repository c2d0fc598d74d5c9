"""Where the library of sparse kernels is, and how it is built: one command of any C++17 compiler (GCC or Clang)."""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ltp_pipeline.errors import InputError

SOURCE = Path(__file__).parent / "source"
FILE = {"win32": "ltp_kernels.dll", "darwin": "libltp_kernels.dylib"}.get(
    sys.platform, "libltp_kernels.so"
)
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden")
PATH_VARIABLE = (
    "LTP_KERNELS_PATH"  # names the path to use instead of the best one; read by the library
)


@dataclass(frozen=True)
class Paths:
    """What the library says about this processor."""

    chosen: str  # "avx512", "avx2", "neon" or "portable"
    refused: dict[str, str]  # paths that are not used, and why


def kernels_library() -> Path:
    """The library that was built with the package."""
    path = Path(__file__).parent / FILE
    if not path.is_file():
        raise InputError(
            "the library of sparse kernels was not built",
            "install a C++ compiler and call 'ltp-pipeline kernels --build'",
        )
    return path


def hash_of_sources() -> str:
    """What the library is known by: it is told when it is built, and says so when it is loaded."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted(p for p in SOURCE.iterdir() if p.suffix in (".cpp", ".h")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def command(target: Path, compiler: str | None = None) -> list[str]:
    """The one command that builds the library."""
    words = shlex.split(compiler or os.environ.get("CXX") or "") or ["c++"]
    flags = [*FLAGS, f"-DLTP_KERNELS_SOURCES={hash_of_sources()}"]
    return [*words, *flags, "-o", str(target), *map(str, sorted(SOURCE.glob("*.cpp"))), "-pthread"]


def build(target: Path | None = None, compiler: str | None = None) -> Path:
    """Build the library, by default where kernels_library() finds it."""
    target = target or Path(__file__).parent / FILE
    made = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    words = command(made, compiler)
    if shutil.which(words[0]) is None:
        raise InputError(
            f"there is no C++ compiler named '{words[0]}'",
            "install one, or name it in the variable CXX",
        )
    if not os.access(target.parent, os.W_OK):
        raise InputError(
            f"nothing can be written to {target.parent}", "build it as a user who may write there"
        )
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            first = next(
                (line for line in done.stderr.splitlines() if "error" in line), done.stderr[-200:]
            )
            raise InputError(
                f"building the sparse kernels failed: {first}", "use GCC 9, Clang 10 or newer"
            )
        made.replace(target)
    finally:
        made.unlink(missing_ok=True)
    return target


def query_instruction_sets(library: Path) -> Paths:
    """Which path the library takes on this processor, after each has proven itself.

    Another process asks it: a file that was cut off, or instructions that are not there, end a process without a word.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-c", _ASK, str(library)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        ended = f"{library} ends the process that loads it (signal {-done.returncode})"
        said = next(reversed(done.stderr.split("Error: ")[1:]), ended).strip()
        raise InputError(
            f"the sparse kernels cannot be loaded: {said}",
            "build them anew: 'ltp-pipeline kernels --build'",
        )
    sources, chosen, *lines = done.stdout.splitlines()
    if sources != hash_of_sources():
        raise InputError(
            "the sparse kernels were built from other sources than these",
            "build them anew: 'ltp-pipeline kernels --build'",
        )
    if not chosen:
        wanted = os.environ.get(PATH_VARIABLE)
        known = ", ".join(line for line in lines if ": " not in line)
        raise InputError(
            f"{PATH_VARIABLE} is {wanted!r}, which cannot be used here",
            f"leave it out, or take {known}",
        )
    return Paths(chosen, dict(line.split(": ", 1) for line in lines if ": " in line))


_ASK = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
for function in (library.ltp_kernels_sources, library.ltp_kernels_path, library.ltp_kernels_paths):
    function.restype = ctypes.c_char_p
    print(function().decode().strip())
"""
