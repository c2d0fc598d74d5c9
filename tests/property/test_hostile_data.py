"""Some damaged data sets through the command line; `python -m tests.fuzz.data` tries more."""

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT


@pytest.mark.skipif(sys.platform != "linux", reason="memory limits and /proc need Linux")
def test_damaged_data_are_accepted_or_rejected_within_limits() -> None:
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
