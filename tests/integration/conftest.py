"""Fixtures of tests of complete runs."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ltp_pipeline.stages.train import loop
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.phase import Phase
from tests.support.runs import common_root, list_files, shared_run


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of the example with a short run, a baseline and every encoding; read-only."""
    folder = shared_run(common_root(tmp_path_factory))
    before = list_files(folder)
    yield folder
    assert list_files(folder) == before, "a test has changed the run that all tests share"


@pytest.fixture
def finished(shared: Path, tmp_path: Path) -> Path:
    """Copy the folder of the shared run."""
    return Path(shutil.copytree(shared, tmp_path / "finished"))


@pytest.fixture
def as_shipped() -> None:
    """Keep plots in reports and onnxsim in its own process, for tests that need them."""


@pytest.fixture(autouse=True)
def _quickly(request: pytest.FixtureRequest) -> None:
    if "as_shipped" not in request.fixturenames:
        request.getfixturevalue("quickly")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the phase of every training step."""
    phases: list[str] = []
    step = loop._train_step

    def noted(context: RunContext, forward: object, phase: Phase, *rest: object) -> None:
        phases.append(phase.key)
        step(context, forward, phase, *rest)

    monkeypatch.setattr(loop, "_train_step", noted)
    return phases
