"""Data sets opened for a model: formats, settings of inputs, splits, and what is rejected."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.data import dataset
from ltp_pipeline.data.open import count_workers, open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings
from tests.support.archives import (
    RGB,
    get_open_error,
    make_images,
    make_labels,
    make_sequences,
    open_archive,
)
from tests.support.samples import only_input

IDS = TensorInfo("ids", "INT64", ("N", "T"))
AGE = TensorInfo("age", "FLOAT", ("N", 1))


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """Sequences of tokens with one number each."""
    ages = {f"age_{split}": np.full((10, 1), 8, np.float32) for split in ("train", "val", "test")}
    np.savez(tmp_path / "data.npz", **make_sequences("ids"), **ages)
    return tmp_path / "data.npz"


def open_error(settings: dict[str, Any], inputs: list[TensorInfo]) -> InputError:
    with pytest.raises(InputError) as caught:
        open_data(DataSettings.model_validate(settings), inputs, 0)
    return caught.value


def test_import_needs_no_torch() -> None:
    code = (
        "import sys, ltp_pipeline.data.open, ltp_pipeline.data.loader\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_read_batches_are_contiguous_and_may_be_changed(archive: Path) -> None:
    np.savez(archive, x_train=make_images(10, 4, 4, 3, dtype=np.float64), y_train=make_labels(10))
    train = open_archive(archive, RGB, layout="NHWC").train
    batch = only_input(train.read(np.arange(3)))
    assert batch.dtype == np.float32
    assert batch.flags.c_contiguous
    before = batch.copy()
    batch += 1
    np.testing.assert_array_equal(only_input(train.read(np.arange(3))), before)


def test_fingerprint_follows_content_seed_and_fraction(archive: Path) -> None:
    np.savez(archive, x_train=make_images(20, 4, 4), y_train=make_labels(20))
    first = open_archive(archive).fingerprint
    assert open_archive(archive).fingerprint == first
    assert open_archive(archive, seed=1).fingerprint != first
    assert open_archive(archive, validation_fraction=0.3).fingerprint != first
    assert open_archive(archive, scale=0.5).fingerprint == first
    np.savez(archive, x_train=make_images(20, 4, 4) + 1, y_train=make_labels(20))
    assert open_archive(archive).fingerprint != first


def test_open_data_no_path_hints_at_all_ways() -> None:
    hint = get_open_error(None).hint
    for way in ("--data", "ltp.toml", "--config", "ltp-pipeline demo"):
        assert way in hint


def test_open_data_missing_path_is_named(archive: Path) -> None:
    assert str(archive) in get_open_error(archive).message


def test_open_data_unknown_format_hints_at_known_ones(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1,2,3")
    assert ".npz" in get_open_error(tmp_path / "data.csv").hint
    (tmp_path / "empty").mkdir()
    assert "class folders" in get_open_error(tmp_path / "empty").hint


def test_open_data_splits_of_different_shapes_raise(archive: Path) -> None:
    train = {"x_train": make_images(6, 4, 4), "y_train": make_labels(6)}
    np.savez(archive, **train, x_val=make_images(6, 5, 5), y_val=make_labels(6))
    info = TensorInfo("image", "FLOAT", ("N", 1, "H", "W"))
    assert "(5, 5)" in get_open_error(archive, info).message


def test_open_data_settings_of_unknown_input_raise(tokens: Path) -> None:
    error = open_error({"path": tokens, "inputs": {"id": {"scale": 1}}}, [IDS, AGE])
    assert "'id'" in error.message
    assert "'ids', 'age'" in error.hint


def test_input_settings_for_all_do_not_scale_integers(tokens: Path) -> None:
    settings = {"path": tokens, "scale": 0.5, "inputs": {"ids": {"padding_value": 1}}}
    batch = open_data(DataSettings.model_validate(settings), [IDS, AGE], 0).test.read_first(10)
    assert batch.inputs["age"][0, 0] == 4
    assert batch.inputs["ids"].min() == 1
    assert batch.inputs["ids"].max() == 9


def test_padding_value_that_the_stored_type_cannot_hold_raises(tokens: Path) -> None:
    settings = {"path": tokens, "inputs": {"ids": {"padding_value": -1}}}
    error = open_error(settings, [IDS, AGE])
    assert "uint8" in error.message
    assert "[data.inputs.ids]" in error.hint


def test_sequences_longer_than_the_model_takes_raise(tokens: Path) -> None:
    error = open_error({"path": tokens}, [TensorInfo("ids", "INT64", ("N", 5)), AGE])
    for part in ("'ids'", "5", "sample 4", "6"):
        assert part in error.message


def test_computed_mask_is_not_scaled(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", v=np.full(8, 4, np.float32), v_offsets=[0, 3, 5, 8])
    inputs = [TensorInfo(name, "FLOAT", ("N", "S")) for name in ("mask", "v")]
    settings = {"path": tmp_path / "data.npz", "scale": 0.5, "mean": 1, "std": 2}
    data = open_data(DataSettings.model_validate(settings), inputs, 0)
    batch = data.train.read_first(1)
    assert set(batch.inputs["mask"].ravel()) == {1.0}
    assert set(batch.inputs["v"].ravel()) == {0.5}
    assert data.train.inputs["mask"].recipe.mask_of == "v"
    error = open_error({**settings, "inputs": {"mask": {"scale": 1}}}, inputs)
    assert "'mask'" in error.message


@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_open_data_one_number_per_sample_is_a_row(tmp_path: Path, kind: str) -> None:
    np.savez(tmp_path / "data.npz", x=np.arange(8).astype(kind), y=np.arange(8) % 2)
    data = open_data(DataSettings(path=tmp_path / "data.npz", scale=2.0), [AGE], 0)
    expected = [[2.0 * row] for row in data.train.rows]
    assert data.train.read_first(8).inputs["age"].tolist() == expected


@pytest.mark.parametrize(
    ("own", "shared", "text"),
    [
        ({"mean": [1, 2]}, {}, '[data.inputs."in:0"]'),
        ({"std": [1, 2]}, {}, '[data.inputs."in:0"]'),
        ({"resize": [5, 5]}, {}, 'resize = [4, 4] in [data.inputs."in:0"]'),
        ({"layout": "NHWC"}, {}, 'layout = "NCHW" in [data.inputs."in:0"]'),
        ({}, {"resize": [4, 4]}, "[data] and [data.inputs.more]"),
    ],
)
def test_hint_names_the_section_of_the_input(
    tmp_path: Path, own: object, shared: dict[str, object], text: str
) -> None:
    arrays = {"in:0": np.zeros((8, 3, 4, 4), np.float32), "more": np.zeros((8, 2))}
    np.savez(tmp_path / "data.npz", **arrays)
    inputs = [TensorInfo("in:0", "FLOAT", ("N", 3, 4, 4)), TensorInfo("more", "FLOAT", ("N", 2))]
    settings = {"path": tmp_path / "data.npz", "inputs": {"in:0": own}, **shared}
    assert text in open_error(settings, inputs).hint


def test_count_workers_default_is_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [count_workers(number) for number in (0, 8)] == [0, 8]
    monkeypatch.setattr(sys, "platform", "linux")
    assert count_workers(None) == dataset.NUM_THREADS
    monkeypatch.setattr(sys, "platform", "darwin")
    assert count_workers(None) == 0
