"""Sequences with a label for each value, from the command line: what works, and what is refused before training."""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.support.cli import invoke
from tests.support.models import Graph

TOKENS, CLASSES = 12, 5
LENGTHS = 2 + np.arange(60) % 5
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS)])


class Tagged(NamedTuple):
    """A tagger with its data."""

    model: Path
    data: Path
    arrays: dict[str, np.ndarray]

    def put(self, **arrays: np.ndarray) -> Path:
        """Write the data anew, with these in place of what was there."""
        np.savez(self.data, **{**self.arrays, **arrays})
        return self.data


def tagger(classes_first: bool, width: str | int = "T") -> onnx.ModelProto:
    g = Graph()
    rows = g.add("Gather", g.random("table", TOKENS, 8, scale=1.0), "ids")
    scores = g.add("MatMul", rows, g.random("head", 8, CLASSES))
    if classes_first:
        scores = g.add("Transpose", scores, perm=[0, 2, 1])
    return g.model({"ids": ("N", width)}, [scores], types={"ids": TensorProto.INT64})


def made(folder: Path, model: onnx.ModelProto) -> Tagged:
    """The labels are what the model says."""
    ids = np.random.default_rng(0).integers(0, TOKENS, OFFSETS[-1])
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    labels = (stored["table"][ids] @ stored["head"]).argmax(1).astype(np.uint8)
    onnx.save(model, folder / "model.onnx")
    arrays = {"ids": ids, "ids_offsets": OFFSETS, "y": labels, "y_offsets": OFFSETS}
    tagged = Tagged(folder / "model.onnx", folder / "data.npz", arrays)
    tagged.put()
    return tagged


@pytest.fixture
def tagged(tmp_path: Path) -> Tagged:
    return made(tmp_path, tagger(classes_first=False))


@pytest.mark.parametrize("width", ["T", 6, 9])
@pytest.mark.parametrize("classes_first", [False, True])
def test_bytes_are_labels_wherever_the_output_has_its_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], classes_first: bool, width: str | int
):
    model, data, _ = made(tmp_path, tagger(classes_first, width))
    result = invoke(capsys, "init", model, "--data", data)
    assert result.code == 0, result.err
    assert "the original has top-1 100.00 %" in result.out


@pytest.mark.parametrize("command", ["init", "validate", "run"])
def test_labels_of_other_length_are_rejected(
    tagged: Tagged, capsys: pytest.CaptureFixture[str], command: str
):
    data = tagged.put(
        y=np.zeros(OFFSETS[-1] + 1, np.int64), y_offsets=OFFSETS + (np.arange(len(OFFSETS)) > 7)
    )
    result = invoke(capsys, command, tagged.model, "--data", data)
    assert result.code == 3
    labels, values = rf"\b{LENGTHS[7] + 1} labels in y\b", rf"\b{LENGTHS[7]} values in ids\b"
    assert re.search(rf"\bsample 7\b.*{labels}.*{values}", result.err)
    assert "Traceback" not in result.err


@pytest.mark.parametrize("command", ["init", "validate", "run"])
def test_token_outside_the_vocabulary_is_rejected(
    tagged: Tagged, capsys: pytest.CaptureFixture[str], command: str
):
    ids = tagged.arrays["ids"].copy()
    ids[OFFSETS[31]] = TOKENS
    result = invoke(capsys, command, tagged.model, "--data", tagged.put(ids=ids))
    assert result.code == 3
    assert re.search(rf"\bsample 31\b.*'ids'.*\b{TOKENS}\b", result.err)
    assert "Traceback" not in result.err


def test_sequence_too_long_for_the_model_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    g = Graph()
    length = g.add("Gather", g.add("Shape", "ids"), g.tensor("axis", 1, np.int64))
    places = g.add("Range", g.tensor("first", 0, np.int64), length, g.tensor("step", 1, np.int64))
    rows = g.add("Gather", g.random("table", TOKENS, 8, scale=1.0), "ids")
    summed = g.add("Add", rows, g.add("Gather", g.random("positions", 6, 8, scale=1.0), places))
    g.add("MatMul", summed, g.random("head", 8, CLASSES))
    model = g.model({"ids": ("N", "T")}, [g.nodes[-1].output[0]], types={"ids": TensorProto.INT64})
    onnx.save(model, tmp_path / "model.onnx")
    offsets = OFFSETS + (np.arange(len(OFFSETS)) > 4)  # sample 4 has 7 tokens
    np.savez(tmp_path / "data.npz", ids=np.zeros(offsets[-1], np.int64), ids_offsets=offsets)
    result = invoke(capsys, "run", tmp_path / "model.onnx", "--data", tmp_path / "data.npz")
    assert result.code == 3
    assert re.search(r"\bsample 4\b.*\b7 values\b.*\bGather\b", result.err)
