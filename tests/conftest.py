"""What all tests share."""

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
    """The embedded example, copied into a folder of its own."""
    copy_example(tmp_path / "example")
    return tmp_path / "example"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twenty photographs of two classes."""
    for i in range(20):
        write_file(tmp_path / "photos" / "ab"[i % 2] / f"{i:02}.jpg", make_jpeg(i))
    return tmp_path / "photos"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images are decoded when they are asked for, as those of a folder that does not fit in memory."""
    monkeypatch.setattr(collection, "MAX_DECODED_BYTES", 0)


@pytest.fixture
def quickly() -> Iterator[None]:
    """No pictures in reports, and onnxsim in this process."""
    with skip_slow_parts():
        yield


@pytest.fixture
def without_onnxsim(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part that is ours alone, without waiting for a process to start."""

    def failing(*_: object) -> OnnxModel:
        raise simplify.SimplifyFailed("onnxsim is away")

    monkeypatch.setattr(simplify, "simplify_model", failing)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Library of sparse operators."""
    if shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler")
    return build_once(common_root(tmp_path_factory))
