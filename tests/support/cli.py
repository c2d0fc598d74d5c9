"""Run the command line in this process: what it prints, and how it ends."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from ltp_pipeline.cli import app


class Result(NamedTuple):
    code: int
    out: str
    err: str


def invoke(capsys: pytest.CaptureFixture[str], *arguments: object) -> Result:
    """Call the program as a shell would; its own traceback counts as a failure of the test."""
    capsys.readouterr()
    before = sys.argv
    sys.argv = ["ltp-pipeline", *map(str, arguments)]
    try:
        app.main()
        code = 0
    except SystemExit as done:
        code = int(done.code or 0)
    finally:
        sys.argv = before
    out, err = capsys.readouterr()
    return Result(code, out, err)


def says_finished(errors: str) -> bool:
    """Return whether a command reported that its run was finished before."""
    return " is finished already" in errors


def start(
    *arguments: object, cwd: Path, largest_file: int | None = None, own_group: bool = False
) -> "subprocess.Popen[str]":
    """Start the program in its own process, for tests that kill it or limit the size of its files.

    In a group of its own it and its children can be interrupted together, as by a terminal.
    """

    def prepare() -> None:
        # A shell's background context ignores these and hands that on; a terminal does not.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    return subprocess.Popen(
        [sys.executable, "-m", "ltp_pipeline", *map(str, arguments)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
        start_new_session=own_group,
        env={**os.environ, "CI": "true", "OMP_NUM_THREADS": "1"},
    )


def takes_signals(process: "subprocess.Popen[str]") -> bool:
    """Return whether the program handles SIGTERM, which Python by itself does not."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False
