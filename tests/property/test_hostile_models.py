"""Some cases of the fuzzer of models: each is accepted or rejected with an error of ours.

Nothing else may happen: no other exception, crash, or hang, and memory stays bounded. `inspect` and
import are called in this process.
"""

import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ltp_pipeline.errors import InputError, UnsupportedModel
from ltp_pipeline.settings.schema import ModelSettings
from ltp_pipeline.stages.import_model import import_model
from ltp_pipeline.stages.tools.inspect import inspect
from tests.fuzz import models

NEVER = ModelSettings(simplify="never")
MAX_SECONDS = 10  # of processor time, far above the milliseconds that a case takes
MAX_MEGABYTES = 1500
MAX_MESSAGE_LENGTH = 600  # characters of a message


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def attempt(seed: int, number: int, folder: Path, use: Callable[[Path], object]) -> None:
    path = models.write_case(models.make_case(seed, number), folder)
    start = time.process_time()
    megabytes = peak_megabytes()
    rejection = None
    try:
        use(path)
    except (InputError, UnsupportedModel) as error:
        rejection = error
    if rejection is not None:
        assert 0 < len(rejection.message) < MAX_MESSAGE_LENGTH
        assert rejection.message.isprintable()
        assert rejection.hint.strip()
    assert time.process_time() - start < MAX_SECONDS
    assert peak_megabytes() - megabytes < MAX_MEGABYTES


def imported(path: Path) -> None:
    import_model(path, settings=NEVER)


@pytest.mark.parametrize("tens", range(15))
def test_damaged_models_are_inspected_or_rejected(tens: int, tmp_path: Path) -> None:
    for number in range(10 * tens, 10 * tens + 10):
        folder = tmp_path / str(number)
        folder.mkdir()
        attempt(0, number, folder, inspect)


@pytest.mark.parametrize("tens", range(3))
def test_damaged_models_are_imported_or_rejected(tens: int, tmp_path: Path) -> None:
    for number in range(10 * tens, 10 * tens + 10):
        folder = tmp_path / str(number)
        folder.mkdir()
        attempt(1, number, folder, imported)


@pytest.mark.long
def test_many_damaged_models_are_imported_or_rejected(tmp_path: Path) -> None:
    for number in range(3000):
        folder = tmp_path / str(number)
        folder.mkdir()
        attempt(2, number, folder, imported)


def test_same_seed_makes_the_same_case() -> None:
    assert models.make_case(5, 3) == models.make_case(5, 3)
    assert models.make_case(5, 3) != models.make_case(6, 3)


def test_cases_cover_every_mutant() -> None:
    names = " ".join(models.make_case(0, number).name for number in range(200))
    mutants = (*models.MESSAGE_MUTANTS, *models.GRAPH_MUTANTS)
    assert {m.__name__ for m in mutants if m.__name__ not in names} <= {
        "add_training_info",
        "shuffle_nodes",
        "store_text",
    }
    assert " bytes" in names
