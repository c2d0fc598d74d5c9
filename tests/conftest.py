"""Fixtures of all tests."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ltp_pipeline.data.images import collection
from ltp_pipeline.demo import copy_example
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.rewrites import simplify
from ltp_pipeline.system import thread_env
from tests.support.kernels import build_once
from tests.support.photos import make_jpeg, write_file
from tests.support.runs import common_root, skip_slow_parts

torch.set_num_threads(
    1
)  # the suite runs in parallel; more threads per process only get in each other's way
thread_env._late = False  # torch is loaded first here, which is said in tests that are about it


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """Copy the embedded example into a new folder."""
    copy_example(tmp_path / "example")
    return tmp_path / "example"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Write twenty photographs of two classes."""
    for i in range(20):
        write_file(tmp_path / "photos" / "ab"[i % 2] / f"{i:02}.jpg", make_jpeg(i))
    return tmp_path / "photos"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode images on each access, as for a folder that does not fit in memory."""
    monkeypatch.setattr(collection, "MAX_DECODED_BYTES", 0)


@pytest.fixture
def quickly() -> Iterator[None]:
    """Skip plots in reports, and run onnxsim in this process."""
    with skip_slow_parts():
        yield


@pytest.fixture
def without_onnxsim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let onnxsim fail, so that only our own rewrites run."""

    def failing(*_: object) -> OnnxModel:
        raise simplify.SimplifyFailed("onnxsim is away")

    monkeypatch.setattr(simplify, "simplify_model", failing)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library of sparse operators."""
    if shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler")
    return build_once(common_root(tmp_path_factory))
