"""The Python interface as README shows it: paths as text, settings as classes, results with types."""

import dataclasses
import os
import typing
from pathlib import Path

import pytest

import ltp_pipeline as ltp
from ltp_pipeline.demo import copy_to


class Place(os.PathLike[str]):
    """A path that is neither text nor a Path."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return self.path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ltp.Outcome]:
    """A model and the run of it, both given as text."""
    folder = tmp_path_factory.mktemp("example")
    model = str(copy_to(folder))
    settings = ltp.Settings(
        data=ltp.DataSettings(path=str(folder / "digits.npz"), scale=0.0625),
        budget=ltp.BudgetSettings(target_compression=5),
        train=ltp.TrainSettings(epochs=1, finetune_epochs=0, batch_size=64),
        export=ltp.ExportSettings(formats=("packed",)),
        baseline=ltp.BaselineSettings(enabled=False),
        gates=ltp.GateSettings(max_drop=0.9),
    )
    return model, ltp.run(model, settings, out=str(folder / "run"))


def test_run_returns_an_outcome_with_verdicts(finished: tuple[str, ltp.Outcome]):
    model, outcome = finished
    assert isinstance(outcome, ltp.Outcome)
    assert outcome.folder == Path(model).parent / "run"
    (verdict,) = outcome.verdicts
    assert isinstance(verdict, ltp.Verdict)
    assert (verdict.name, verdict.passed) == ("max_drop", True)


@pytest.mark.parametrize("kind", [str, Path, Place])
def test_every_path_may_be_text_or_anything_like_a_path(finished: tuple[str, ltp.Outcome], kind: typing.Any):
    model, outcome = finished
    packed, data = str(outcome.folder / "model.packed.onnx"), str(Path(model).parent / "digits.npz")
    inspection = ltp.inspect(kind(packed))
    assert (inspection.path, inspection.format) == (packed, "packed")
    assert sum(k.nonzeros for k in inspection.kernels) == outcome.report["pruned"]["nonzeros"]
    assert isinstance(ltp.import_model(kind(model))[0], ltp.Network)
    verdicts = ltp.gate(kind(str(outcome.folder / "report.json")), max_drop=0.9)
    assert all(isinstance(v, ltp.Verdict) and v.passed for v in verdicts)
    found = ltp.validate(kind(packed), kind(data), against=kind(model))
    assert dataclasses.asdict(found.accuracy) == outcome.report["pruned"]["accuracy"]
    assert found.against is not None
    assert found.against.drop == pytest.approx(outcome.report["pruned"]["drop"])
    config = str(Path(model).parent / "ltp.toml")
    assert ltp.validate(kind(model), config=kind(config)).accuracy == found.against.accuracy


def test_validate_takes_settings_of_the_data_as_they_are(finished: tuple[str, ltp.Outcome]):
    model, outcome = finished
    data = ltp.DataSettings(path=str(Path(model).parent / "digits.npz"))  # without the scale that is beside the model
    assert ltp.validate(model, data).accuracy != ltp.validate(model).accuracy
    assert outcome.report["original"]["accuracy"] == dataclasses.asdict(ltp.validate(model).accuracy)


def test_results_cannot_be_changed(finished: tuple[str, ltp.Outcome]):
    model, outcome = finished
    for result in (outcome, outcome.verdicts[0], ltp.inspect(model), ltp.validate(model)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(result, dataclasses.fields(result)[0].name, None)
