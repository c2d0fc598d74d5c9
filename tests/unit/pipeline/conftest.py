"""Fixtures of tests of the pipeline."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.sample_report import sample


@pytest.fixture
def report() -> dict[str, Any]:
    """Return a report with compressions 8.36× and 7.87×, a drop of 0.45 points and entry 7 selected."""
    return sample()[0]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return a path for an npz file."""
    return tmp_path / "data.npz"
