"""Where the library of sparse kernels is, and how it is built: one command of any C++17 compiler (GCC or Clang)."""

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ltp_pipeline.errors import InputError
from ltp_pipeline.system.child_process import CallFailed, ChildCrashed, call_once

SOURCE = Path(__file__).parent / "source"
FILE_NAME = {"win32": "ltp_kernels.dll", "darwin": "libltp_kernels.dylib"}.get(
    sys.platform, "libltp_kernels.so"
)
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden")
_FUNCTION = "ltp_pipeline.exporters.sparse_ops.library:read_library_info"
INSTRUCTION_SET_VARIABLE = (
    "LTP_KERNELS_PATH"  # names the path to use instead of the best one; read by the library
)


@dataclass(frozen=True)
class InstructionSets:
    """What the library says about this processor."""

    chosen: str  # "avx512", "avx2", "neon" or "portable"
    rejected: dict[str, str]  # paths that are not used, and why


def sparse_ops_library() -> Path:
    """The library that was built with the package."""
    path = Path(__file__).parent / FILE_NAME
    if not path.is_file():
        raise InputError(
            "the library of sparse kernels was not built",
            "install a C++ compiler and call 'ltp-pipeline sparse-ops --build'",
        )
    return path


def hash_sources() -> str:
    """What the library is known by: it is told when it is built, and says so when it is loaded."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted(p for p in SOURCE.iterdir() if p.suffix in (".cpp", ".h")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def make_build_command(target: Path, compiler: str | None = None) -> list[str]:
    """The one command that builds the library."""
    words = shlex.split(compiler or os.environ.get("CXX") or "") or ["c++"]
    flags = [*FLAGS, f"-DLTP_KERNELS_SOURCES={hash_sources()}"]
    return [*words, *flags, "-o", str(target), *map(str, sorted(SOURCE.glob("*.cpp"))), "-pthread"]


def build_library(target: Path | None = None, compiler: str | None = None) -> Path:
    """Build the library, by default where sparse_ops_library() finds it."""
    target = target or Path(__file__).parent / FILE_NAME
    made = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    words = make_build_command(made, compiler)
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


def query_instruction_sets(library: Path) -> InstructionSets:
    """Return which instruction sets the library can use on this processor.

    A child process asks the library, because a damaged file or a missing instruction ends the
    process that loads it.

    Args:
        library: File of the library.

    Raises:
        InputError: If the library cannot be loaded, was built from other sources, or cannot use
            the instruction set that the environment requests.
    """
    try:
        sources, chosen, instruction_sets = call_once(_FUNCTION, str(library))
    except (CallFailed, ChildCrashed) as error:
        is_crash = isinstance(error, ChildCrashed)
        reason = f"the process that loads {library} {error}" if is_crash else str(error)
        raise InputError(
            f"the sparse kernels cannot be loaded: {reason}",
            "build them again: 'ltp-pipeline sparse-ops --build'",
        ) from None
    if sources != hash_sources():
        raise InputError(
            "the sparse kernels were built from other sources than these",
            "build them again: 'ltp-pipeline sparse-ops --build'",
        )
    lines = instruction_sets.splitlines()
    if not chosen:
        requested = os.environ.get(INSTRUCTION_SET_VARIABLE)
        usable = ", ".join(line for line in lines if ": " not in line)
        raise InputError(
            f"{INSTRUCTION_SET_VARIABLE} is {requested!r}, which cannot be used here",
            f"leave it out, or take {usable}",
        )
    return InstructionSets(chosen, dict(line.split(": ", 1) for line in lines if ": " in line))


def read_library_info(library: str) -> list[str]:
    """Return what a library says of itself; runs in a child process.

    Returns:
        The hash of its sources; the instruction set in use, empty if the requested one cannot be
        used; the lines of all instruction sets, with ": " and a reason if one cannot be used.
    """
    handle = ctypes.CDLL(library)
    answers = []
    for name in ("ltp_kernels_sources", "ltp_kernels_path", "ltp_kernels_paths"):
        function = handle[name]
        function.restype = ctypes.c_char_p
        answers.append(function().decode().strip())
    return answers
