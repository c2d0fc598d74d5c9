"""When an original counts as better than chance, and which causes are found if it is not."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.prepare import check_original, prepare_run
from ltp_pipeline.stages.prepare.label_check import exceeds_chance
from tests.support import kinds
from tests.support.models import Array, masked_tokens, run_onnxruntime, two_outputs

SAMPLES = 300


@pytest.mark.parametrize(
    ("accuracy", "num_samples", "chance", "expected"),
    [
        (0.98, 72, 0.25, True),
        (0.30, 72, 0.25, False),  # above chance, but such luck is common
        (0.30, 2000, 0.25, True),
        (0.25, 10**6, 0.25, False),
        (0.0, 500, 0.1, False),
        (0.97, 200, 0.95, False),
        (0.97, 5000, 0.95, True),
        (0.625, 8, 0.25, True),
        (1.0, 2, 0.5, True),
        (1.0, 30, 1.0, True),
    ],
)
def test_exceeds_chance_depends_on_the_number_of_samples(accuracy, num_samples, chance, expected):
    assert exceeds_chance(accuracy, num_samples, chance) == expected


def test_exceeds_chance_accepts_one_of_twenty_guessing_originals():
    rng = np.random.default_rng(0)
    accuracies = rng.binomial(1000, 0.25, 20_000) / 1000
    accepted = np.mean([exceeds_chance(accuracy, 1000, 0.25) for accuracy in accuracies])
    assert accepted == pytest.approx(0.05, abs=0.01)


def hint_of(folder: Path, model: onnx.ModelProto, arrays: Mapping[str, Array]) -> str:
    """The hint for an original that is not better than chance."""
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "data.npz", **arrays)
    settings = load_settings(folder / "model.onnx", options={"data": {"path": folder / "data.npz"}})
    file = read_model_file(folder / "model.onnx")
    context, state = prepare_run(file, settings, RunDirectory(folder / "run"))
    with pytest.raises(InputError) as caught:
        check_original(context, state)
    assert "--skip-label-check" in caught.value.hint
    return caught.value.hint


def test_check_labels_of_another_output_names_it(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((SAMPLES, 8)).astype(np.float32)
    y = run_onnxruntime(two_outputs(), {"x": x})[1].argmax(1)
    assert 'output = "colour" in [task]' in hint_of(tmp_path, two_outputs(), {"x": x, "y": y})


def test_check_labels_names_computed_masks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 6, SAMPLES)
    ids, offsets = rng.integers(0, 12, lengths.sum()), np.cumsum([0, *lengths])
    arrays = {"ids": ids, "ids_offsets": offsets, "y": rng.integers(0, 3, SAMPLES)}
    assert "'ids_mask'" in hint_of(tmp_path, masked_tokens(), arrays)


def test_check_labels_of_a_regression_names_the_scale(tmp_path: Path) -> None:
    model, arrays = kinds.regress(np.random.default_rng(0))
    stored = arrays["x"] * np.float32(255)
    assert f"scale = {1 / 255!r} in [data]" in hint_of(tmp_path, model, {**arrays, "x": stored})
