"""A spoiled model is imported or refused in our own words: no other exception, no crash, no hang, bounded memory."""

import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto

from ltp_pipeline.config import ModelSettings
from ltp_pipeline.errors import InputError, UnsupportedModel
from ltp_pipeline.stages.import_model import import_model
from ltp_pipeline.stages.inspect import inspect
from tests.support.mutations import spoil_bytes, spoil_structure
from tests.support.victims import VICTIMS

NEVER = ModelSettings(simplify="never")
SECONDS = 20  # far above the milliseconds it takes; a hang would be for ever
MEGABYTES = 1500
some_victim = st.sampled_from(sorted(VICTIMS))
some_seed = st.integers(0, 2**32)
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
thorough = settings(quick, max_examples=3000)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def attempt(use: Callable[[], object]) -> None:
    begun, before, complaint = time.monotonic(), peak(), None
    try:
        use()
    except (InputError, UnsupportedModel) as error:
        complaint = error
    if complaint is not None:
        assert complaint.what.strip()
        assert complaint.remedy.strip()
        assert "\n" not in complaint.what
    assert time.monotonic() - begun < SECONDS
    assert peak() - before < MEGABYTES


def spoiled_file(victim: str, seed: int, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(spoil_bytes(VICTIMS[victim].SerializeToString(), seed))
    return path


def spoiled_model(victim: str, seed: int) -> ModelProto:
    return spoil_structure(VICTIMS[victim], seed)


@quick
@given(victim=some_victim, seed=some_seed)
def test_spoiled_bytes(victim: str, seed: int, tmp_path: Path) -> None:
    path = spoiled_file(victim, seed, tmp_path)
    attempt(lambda: import_model(path, settings=NEVER))


@quick
@given(victim=some_victim, seed=some_seed)
def test_spoiled_structure(victim: str, seed: int) -> None:
    model = spoiled_model(victim, seed)
    attempt(lambda: import_model(model, settings=NEVER))


@quick
@given(victim=some_victim, seed=some_seed)
def test_inspect_of_spoiled_files(victim: str, seed: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(spoiled_model(victim, seed).SerializeToString())
    attempt(lambda: inspect(path))


@pytest.mark.long
@thorough
@given(victim=some_victim, seed=some_seed)
def test_many_spoiled_models(victim: str, seed: int, tmp_path: Path) -> None:
    model = spoiled_model(victim, seed)
    attempt(lambda: import_model(model, settings=NEVER))
    path = spoiled_file(victim, seed, tmp_path)
    attempt(lambda: import_model(path, settings=NEVER))
