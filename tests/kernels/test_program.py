"""The C++ test program, on every instruction set and with sanitizers.

It compares random layers with a plain loop, and tries bad input and many threads. `make
test-kernels` runs all 2,000 cases, `make test-kernels-neon` those for aarch64 in an emulator.
"""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

from ltp_pipeline.exporters.sparse_ops import library
from tests.support.runs import common_root

HERE = Path(__file__).parent
CASES = os.environ.get("LTP_KERNEL_CASES", "300")
PATHS = [
    *{"x86_64": ("avx512", "avx2"), "aarch64": ("neon",)}.get(platform.machine(), ()),
    "portable",
]
BUILDS = {
    "optimised": ["-O2"],
    "address": ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-O1", "-g", "-fsanitize=thread"],
}
CROSS, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
UNUSABLE = 2  # the exit code where this processor does not have a path


def build(
    factory: pytest.TempPathFactory, name: str, flags: list[str], compiler: str = "c++"
) -> Path:
    """The program, built once for all workers.

    Scratch memory is filled with NaN, and small outputs count as large.
    """
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no compiler {compiler}")
    root = common_root(factory)
    target = root / f"kernels-{name}"
    sources = [HERE / "test_kernels.cpp", *sorted(library.SOURCE.glob("*.cpp"))]
    words = [
        compiler,
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        *flags,
        "-DLTP_POISON_SCRATCH",
        "-DLTP_UNCACHED=256",
    ]
    words += [f"-I{library.SOURCE}", f"-I{HERE}", *map(str, sources), "-pthread", "-o", str(target)]
    with FileLock(root / f"kernels-{name}.lock"):
        if not target.exists():
            subprocess.run(words, check=True)
    return target


def run(command: list[str], path: str, cases: str = CASES) -> None:
    environment = {**os.environ, library.INSTRUCTION_SET_VARIABLE: path}
    done = subprocess.run(
        [*command, cases], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode == UNUSABLE:
        pytest.skip(f"this processor has no {path}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", BUILDS)
def test_kernels_match_plain_loop(name: str, path: str, tmp_path_factory: pytest.TempPathFactory):
    program = build(tmp_path_factory, name, BUILDS[name])
    # ThreadSanitizer wants its memory where it always is
    fixed = ["setarch", "-R"] if name == "thread" and shutil.which("setarch") else []
    run([*fixed, str(program)], path)


@pytest.mark.long
def test_neon_kernels_match_plain_loop_in_emulator(tmp_path_factory: pytest.TempPathFactory):
    if shutil.which(EMULATOR) is None:
        pytest.skip("there is no qemu-user")
    program = build(tmp_path_factory, "neon", ["-O2", "-static"], CROSS)
    run([EMULATOR, str(program)], "neon")
