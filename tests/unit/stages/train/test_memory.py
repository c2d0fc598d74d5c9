"""Memory that is kept between steps: only where glibc is, and never against the user's own settings."""

import os
import platform

import pytest
import torch

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.stages.train.memory import explain_shortage, keep_freed_memory


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith(("MALLOC_", "GLIBC_TUNABLES"))]:
        monkeypatch.delenv(name)


def test_keep_freed_memory_needs_glibc() -> None:
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_keep_freed_memory_respects_the_environment(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "glibc.malloc.trim_threshold=1" if name == "GLIBC_TUNABLES" else "1")
    assert not keep_freed_memory()


def test_keep_freed_memory_does_nothing_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    assert not keep_freed_memory()


@pytest.mark.parametrize("where", ["in a node", "elsewhere"])
def test_explain_shortage_raises_with_the_batch_size(where: str):
    def step() -> None:
        try:
            raise torch.OutOfMemoryError
        except torch.OutOfMemoryError as error:
            if where == "in a node":
                raise NodeError("node 3") from error
            raise

    with pytest.raises(TrainingFailed) as caught, explain_shortage(128):
        step()
    assert "128" in caught.value.message
    assert "train.batch_size" in caught.value.hint
