"""example.npz of a handoff."""

import io
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.data.dataset import ArraySamples
from ltp_pipeline.data.generated import describe_inputs, generate_samples
from ltp_pipeline.data.sequences import MaskSamples, RaggedSamples
from ltp_pipeline.stages import handoff
from ltp_pipeline.stages.handoff import example as handoff_example
from tests.support.bare import run_bare
from tests.support.finished import (
    RECIPE,
    inputs_of,
    write_masked_run,
    write_run,
    write_two_inputs_run,
)
from tests.support.photos import open_photos, write_file
from tests.support.sample_report import report_of
from tests.support.samples import model

LABELS = np.arange(10) % 2


def test_generate_values_cover_the_range_of_all_splits(tmp_path: Path):
    x = np.zeros((3, 10, 4), np.float32)
    x[1, 3, 1], x[2, 8, 2] = -1.5, 7
    named = {
        f"{key}_{part}": v
        for part, *pair in zip(("train", "val", "test"), x, [LABELS] * 3, strict=True)
        for key, v in zip("xy", pair, strict=True)
    }
    np.savez(tmp_path / "data.npz", **named)
    recipes = describe_inputs(open_photos(tmp_path / "data.npz", model(4)))
    (stored,) = [recipe.stored for recipe in recipes.values()]
    assert stored is not None
    assert stored.range == (-1.5, 7)
    (samples,) = generate_samples(recipes, 50, seed=1).values()
    generated = samples.take(np.arange(50))
    assert (generated.dtype, generated.shape) == (np.float32, (50, 4))
    assert -1.5 <= generated.min() < -1 < 6 < generated.max() <= 7


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return handoff.run(report_of(write_run(tmp_path / "run")), tmp_path / "run", tmp_path / "out")


def verify(folder: Path) -> "subprocess.CompletedProcess[str]":
    return run_bare(folder.parent, ("numpy", "onnxruntime"), folder / "verify.py")


def test_make_example_is_reproducible_and_prepare_makes_its_input(folder: Path, tmp_path: Path):
    report = write_run(tmp_path / "run")
    again = handoff.run(report_of(report), tmp_path / "run", tmp_path / "again")
    assert (again / "example.npz").read_bytes() == (folder / "example.npz").read_bytes()
    example = np.load(folder / "example.npz")
    keys = {
        "samples/image",
        "input/image",
        "tolerance",
        "model.sparse.onnx/0",
        "model.packed.onnx/0",
    }
    assert set(example.files) == keys
    script = write_file(
        tmp_path / "check.py",
        b"import sys, numpy as np, preprocess\n"
        b"example = np.load(sys.argv[1])\n"
        b"assert preprocess.prepare(example['samples/image']).tobytes() == example['input/image'].tobytes()\n",
    )
    for name in ("preprocess.py", "preprocess.json"):
        shutil.copy(folder / name, tmp_path)
    process = run_bare(tmp_path, ("numpy", "PIL"), script, folder / "example.npz")
    assert process.returncode == 0, process.stderr


def test_make_example_preparing_leaves_stored_samples_unchanged(tmp_path: Path):
    write_run(tmp_path)
    floats = {"stored": {"type": "float32", "shape": [3, 32, 32], "range": [0, 1]}, "image": None}
    inputs = inputs_of(RECIPE | floats | {"channels_to_front": False, "resize": None})
    example = np.load(
        io.BytesIO(
            handoff_example.make_example(inputs, [tmp_path / "model.packed.onnx"], None).content
        )
    )
    samples = generate_samples(inputs.recipes, 4, handoff_example.SEED)
    generated = samples["image"].take(np.arange(4))
    assert np.array_equal(example["samples/image"], generated)
    assert not np.array_equal(example["samples/image"], example["input/image"])


def test_make_example_real_samples_are_stored_and_named_on_the_page(tmp_path: Path):
    report = write_run(tmp_path / "run")
    samples = np.random.default_rng(5).integers(0, 256, (3, 32, 32, 3), np.uint8)
    out = handoff.run(
        report_of(report), tmp_path / "run", tmp_path / "out", {"image": ArraySamples(samples)}
    )
    assert np.array_equal(np.load(out / "example.npz")["samples/image"], samples)
    assert (
        "**The samples are real data**: the first 3 of the test split."
        in (out / "HANDOFF.md").read_text()
    )
    assert verify(out).returncode == 0


def test_make_example_fixed_batch_has_that_many_samples(tmp_path: Path):
    write_run(tmp_path)
    fixed = inputs_of(RECIPE, shape=(6, 3, 32, 32))
    for count in (0, 4, 9):
        real = {"image": ArraySamples(np.zeros((count, 32, 32, 3), np.uint8))} if count else None
        example = handoff_example.make_example(fixed, [tmp_path / "model.packed.onnx"], real)
        assert np.load(io.BytesIO(example.content))["input/image"].shape == (6, 3, 32, 32)
        assert example.num_real_samples == min(6, count)


def test_make_example_large_samples_are_reduced_to_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_run(tmp_path)
    monkeypatch.setattr(handoff_example, "MAX_BYTES", 4 * 3 * 32 * 32 * 4)
    example = handoff_example.make_example(
        inputs_of(RECIPE), [tmp_path / "model.packed.onnx"], None
    )
    assert np.load(io.BytesIO(example.content))["input/image"].shape == (1, 3, 32, 32)


def test_make_example_several_inputs_stay_in_the_stored_range(tmp_path: Path):
    out = handoff.run(write_two_inputs_run(tmp_path / "run"), tmp_path / "run", tmp_path / "out")
    example = np.load(out / "example.npz")
    inputs = {"samples/vector", "input/vector", "samples/tokens", "input/tokens"}
    assert set(example.files) == {
        *inputs,
        "tolerance",
        "model.sparse.onnx/0",
        "model.packed.onnx/0",
    }
    vector, tokens = example["samples/vector"], example["samples/tokens"]
    assert (vector.dtype, vector.shape, tokens.dtype, tokens.shape) == (
        np.float32,
        (4, 4),
        np.uint8,
        (4, 3),
    )
    assert 2 <= tokens.min() < tokens.max() <= 5
    assert np.array_equal(example["input/vector"], vector * np.float32(0.5))
    assert (example["input/tokens"].dtype, example["input/tokens"].tolist()) == (
        np.int64,
        tokens.tolist(),
    )
    assert verify(out).returncode == 0


def test_make_example_sequences_have_offsets_and_no_stored_mask(tmp_path: Path):
    out = handoff.run(write_masked_run(tmp_path / "run"), tmp_path / "run", tmp_path / "out")
    example = np.load(out / "example.npz")
    assert [key for key in example.files if key.startswith("samples/")] == [
        "samples/ids",
        "samples/ids_offsets",
    ]
    offsets, ids = example["samples/ids_offsets"], example["input/ids"]
    lengths = np.diff(offsets)
    assert ids.shape == example["input/ids_mask"].shape == (4, lengths.max())
    assert example["input/ids_mask"].sum(axis=1).tolist() == lengths.tolist()
    assert ids[example["input/ids_mask"] == 1].tolist() == example["samples/ids"].tolist()
    assert (ids[example["input/ids_mask"] == 0] == 1).all()
    assert verify(out).returncode == 0


def test_generate_inputs_share_fixed_batch_and_length(tmp_path: Path):
    feeds = handoff_example.generate_inputs(write_masked_run(tmp_path / "run", batch=3))
    assert feeds["ids"].shape == feeds["ids_mask"].shape
    assert len(feeds["ids"]) == 3
    feeds = handoff_example.generate_inputs(write_masked_run(tmp_path / "fixed", width=9, batch=3))
    assert feeds["ids"].shape == feeds["ids_mask"].shape == (3, 9)


def test_make_example_real_sequences_have_their_mask(tmp_path: Path):
    ids = RaggedSamples(np.arange(3, 9, dtype=np.int32), np.array([0, 4, 6]), pad=1)
    samples = {"ids": ids, "ids_mask": MaskSamples(ids)}
    out = handoff.run(
        write_masked_run(tmp_path / "run", batch=3), tmp_path / "run", tmp_path / "out", samples
    )
    example = np.load(out / "example.npz")
    assert example["input/ids"].tolist() == [[3, 4, 5, 6], [7, 8, 1, 1], [3, 4, 5, 6]]
    assert example["input/ids_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]]
    assert "the first 2 of the test split" in (out / "HANDOFF.md").read_text()
    assert verify(out).returncode == 0


def test_make_example_input_named_like_offsets_is_kept_apart():
    ids = RaggedSamples(np.arange(5), np.array([0, 2, 5]))
    samples = {"ids": ids, "ids_offsets": ArraySamples(np.array([7, 8]))}
    no_inputs = handoff_example.ModelInputs([], {})
    example = np.load(io.BytesIO(handoff_example.make_example(no_inputs, [], samples).content))
    stored = {key: example[key] for key in example.files if key.startswith("samples/")}
    assert {key: array.tolist() for key, array in stored.items()} == {
        "samples/ids": [0, 1, 2, 3, 4],
        "samples/ids_offsets_": [0, 2, 5],
        "samples/ids_offsets": [7, 8],
    }
