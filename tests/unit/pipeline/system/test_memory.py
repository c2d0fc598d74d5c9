"""How much memory there is, and how more is refused."""

import sys
from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.system import memory


def test_available_memory_is_within_the_container_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    (tmp_path / "max").write_text("5000000\n")
    (tmp_path / "current").write_text("1000000\n")
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CGROUPS", ())
    assert memory.available_memory() == 8000 * 1024
    monkeypatch.setattr(memory, "_CGROUPS", ((tmp_path / "max", tmp_path / "current"),))
    assert memory.available_memory() == 4_000_000
    (tmp_path / "max").write_text("max\n")
    assert memory.available_memory() == 8000 * 1024


def test_available_memory_without_source_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "missing")
    assert memory.available_memory() is None


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such limits")
def test_limit_memory_raises_and_is_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 1 << 28)
    with memory.limit_memory(), pytest.raises(MemoryError):
        np.zeros(1 << 29, np.uint8)
    assert np.zeros(1 << 29, np.uint8).size


def test_is_shortage_checks_error_and_cause() -> None:
    torch_error = RuntimeError(
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"
    )
    outer = ValueError("Conv 'c'")
    outer.__cause__ = torch_error
    assert memory.is_shortage(MemoryError())
    assert memory.is_shortage(outer)
    assert not memory.is_shortage(ValueError("shapes do not fit"))
