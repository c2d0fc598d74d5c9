"""What is prepared before training."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from ltp_pipeline.errors import InputError, UnsupportedModel
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.prepare import check_original, prepare
from tests.support.models import Array, masked_tokens, run_onnxruntime, two_outputs

SAMPLES = 300


@pytest.mark.usefixtures("capped_relu", "quickly")
def test_a_run_compares_on_its_own_samples(example: Path):
    settings = load_settings(example / "model.onnx", options={"data": {"scale": 100}})
    with pytest.raises(UnsupportedModel, match=r"\(samples\)"):
        prepare(read_model_file(example / "model.onnx"), settings, RunDirectory(example / "run"))


def remedy(folder: Path, model: onnx.ModelProto, arrays: Mapping[str, Array]) -> str:
    """What is said to do where the original is no better than a guess."""
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "data.npz", **arrays)
    settings = load_settings(folder / "model.onnx", options={"data": {"path": folder / "data.npz"}})
    job, state = prepare(
        read_model_file(folder / "model.onnx"), settings, RunDirectory(folder / "run")
    )
    with pytest.raises(InputError) as refused:
        check_original(job, state)
    return refused.value.hint


def test_where_another_output_fits_labels_that_are_only_guessed_it_is_named(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((SAMPLES, 8)).astype(np.float32)
    y = run_onnxruntime(two_outputs(), {"x": x})[1].argmax(1)
    assert "or another output is meant: 'colour' ([task] output)" in remedy(
        tmp_path, two_outputs(), {"x": x, "y": y}
    )


def test_where_labels_are_only_guessed_masks_that_are_made_are_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 6, SAMPLES)
    ids, offsets = rng.integers(0, 12, lengths.sum()), np.cumsum([0, *lengths])
    arrays = {"ids": ids, "ids_offsets": offsets, "y": rng.integers(0, 3, SAMPLES)}
    said = remedy(tmp_path, masked_tokens(), arrays)
    assert "the mask 'ids_mask' is made: 1 where there are values" in said
    assert "another output" not in said
