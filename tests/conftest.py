"""What all tests share."""

from pathlib import Path

import pytest
import torch

from ltp_pipeline.demo import copy_to

torch.set_num_threads(1)  # the suite runs in parallel; more threads per process only get in each other's way


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The embedded example, copied into a folder of its own."""
    copy_to(tmp_path / "example")
    return tmp_path / "example"
