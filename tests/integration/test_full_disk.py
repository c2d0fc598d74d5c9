"""A full disk is told as one, whatever broke for want of space."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from tests.support.models import mlp

SLOW = pytest.mark.slow
SIZE = 1 << 16
IMPORT = """
import sys, tempfile, ltp_pipeline
from ltp_pipeline.errors import LtpError
tempfile.tempdir = sys.argv[2]
try:
    ltp_pipeline.import_model(sys.argv[1])
except LtpError as error:
    print(f"{error.exit_code} {error.message}")
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        pytest.skip(f"no mount here: {error}")
    if done.returncode:
        pytest.skip(f"only root may mount a file system: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def told(model: Path, temporary: Path) -> str:
    """What importing the model fails with."""
    command = [sys.executable, "-c", IMPORT, str(model), str(temporary)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout


@pytest.mark.parametrize("pages", [pytest.param(0, marks=SLOW), pytest.param(1, marks=SLOW), 2])
def test_import_full_temporary_disk_is_named(small_disk: Path, tmp_path: Path, pages: int):
    """Of model, inputs and outputs each takes a page: none fits, one, or all but what onnxruntime's process writes."""
    onnx.save(mlp(), tmp_path / "model.onnx")
    (small_disk / "others").write_bytes(bytes(SIZE - pages * 4096))
    assert os.strerror(errno.ENOSPC) in told(tmp_path / "model.onnx", small_disk)
    assert sorted(path.name for path in small_disk.iterdir()) == ["others"]
