"""Fixtures of tests of data."""

from pathlib import Path

import pytest

from ltp_pipeline.data.images import collection
from tests.support.class_folders import make_picture, save_picture


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write ten images of two classes, a folder for each class."""
    for c, name in enumerate(("cat", "dog")):
        for i in range(5):
            save_picture(tmp_path / "pets" / name / f"{i}.png", make_picture(10 * c + i))
    return tmp_path / "pets"


@pytest.fixture(params=[0, 2**28], ids=["decoded each time", "decoded once"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode images on each access, or once."""
    monkeypatch.setattr(collection, "MAX_DECODED_BYTES", request.param)
