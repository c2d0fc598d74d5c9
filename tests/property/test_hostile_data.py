"""Some spoiled data sets through the command line; `python -m tests.fuzz.data` tries more."""

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT


@pytest.mark.skipif(
    sys.platform != "linux", reason="limits of memory, and what /proc tells of it, are Linux's"
)
def test_spoiled_data_are_taken_or_refused_in_seconds_and_in_little_memory() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.fuzz.data",
            "--seed",
            "19",
            "--count",
            "16",
            "--runs",
            "6",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert '"findings": []' in done.stdout
