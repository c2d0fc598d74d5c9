"""Find, build and query the library of sparse operators.

A single command of GCC or Clang builds it from the sources in source/. `setup.py` loads this module
before the package is installed, so it may import nothing of it but errors and system.
"""

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
# Environment variable that makes the library use an instruction set other than the best.
INSTRUCTION_SET_VARIABLE = "LTP_KERNELS_PATH"
BUILD_COMMAND = "ltp-pipeline sparse-ops --build"
_FUNCTION = "ltp_pipeline.exporters.sparse_ops.library:read_library_info"


@dataclass(frozen=True)
class InstructionSets:
    """The instruction sets of the library on this processor."""

    chosen: str  # "avx512", "avx2", "neon" or "portable"
    rejected: dict[str, str]  # instruction sets that are not used, and why


def sparse_ops_library() -> Path:
    """Return the library that was built with the package.

    Raises:
        InputError: If it was not built.
    """
    path = Path(__file__).parent / FILE_NAME
    if not path.is_file():
        raise InputError(
            "the library of sparse operators was not built",
            f"install a C++ compiler and call '{BUILD_COMMAND}'",
        )
    return path


def hash_sources() -> str:
    """Return the hash of the sources; a library knows the hash of those it was built from."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted(p for p in SOURCE.iterdir() if p.suffix in (".cpp", ".h")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def make_build_command(target: Path, compiler: str | None = None) -> list[str]:
    """Return the command that builds the library, with the compiler of CXX or c++ by default."""
    command = shlex.split(compiler or os.environ.get("CXX") or "") or ["c++"]
    sources = map(str, sorted(SOURCE.glob("*.cpp")))
    define = f"-DLTP_KERNELS_SOURCES={hash_sources()}"
    return [*command, *FLAGS, define, "-o", str(target), *sources, "-pthread"]


def build_library(target: Path | None = None, compiler: str | None = None) -> Path:
    """Build the library.

    Args:
        target: The file to write; None for the place where `sparse_ops_library` finds it.
        compiler: Compiler with options; None for the variable CXX, or c++.

    Returns:
        The file.

    Raises:
        InputError: If there is no compiler, the folder cannot be written, or compiling fails.
    """
    target = target or Path(__file__).parent / FILE_NAME
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    command = make_build_command(temporary, compiler)
    if shutil.which(command[0]) is None:
        raise InputError(
            f"there is no C++ compiler named '{command[0]}'",
            "install one, or set the environment variable CXX to its name",
        )
    if not os.access(target.parent, os.W_OK):
        raise InputError(
            f"the folder {target.parent} cannot be written",
            "build the library as a user who may write there",
        )
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            reason = errors[0] if errors else done.stderr[-200:]
            raise InputError(
                f"building the sparse operators failed: {reason}",
                "use GCC 9, Clang 10 or newer",
            )
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def query_instruction_sets(library: Path) -> InstructionSets:
    """Return which instruction sets the library can use on this processor.

    A child process asks the library, because a damaged file or a missing instruction ends the
    process that loads it.

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
            f"the library of sparse operators cannot be loaded: {reason}",
            f"build it again: '{BUILD_COMMAND}'",
        ) from None
    if sources != hash_sources():
        raise InputError(
            "the library of sparse operators was built from other sources than these",
            f"build it again: '{BUILD_COMMAND}'",
        )
    usable = []
    rejected = {}
    for line in instruction_sets.splitlines():
        name, separator, reason = line.partition(": ")
        if separator:
            rejected[name] = reason
        else:
            usable.append(name)
    if not chosen:
        requested = os.environ.get(INSTRUCTION_SET_VARIABLE)
        raise InputError(
            f"{INSTRUCTION_SET_VARIABLE} is {requested!r}, which this processor cannot use",
            f"unset {INSTRUCTION_SET_VARIABLE}, or set it to {' or '.join(usable)}",
        )
    return InstructionSets(chosen, rejected)


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
