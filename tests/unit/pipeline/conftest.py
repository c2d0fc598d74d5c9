"""What tests of the pipeline share."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.sample_report import sample


@pytest.fixture
def report() -> dict[str, Any]:
    """8.36× and 7.87×, a drop of 0.45 points, twelve epochs; entry 7 of the trail was chosen."""
    return sample()[0]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Where an npz file is to be written."""
    return tmp_path / "data.npz"
