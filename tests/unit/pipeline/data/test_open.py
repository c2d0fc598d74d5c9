"""Data of every format: what is opened, and what is refused."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from ltp_pipeline.graph.model_file import TensorInfo
from tests.support.archives import RGB, images, labels, opened, refusal
from tests.support.samples import only


def test_reading_data_needs_no_torch() -> None:
    code = (
        "import sys, ltp_pipeline.data; sys.exit('torch' in sys.modules or 'onnx' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_samples_are_contiguous_float32_that_may_be_changed(archive: Path) -> None:
    stored = images(10, 4, 4, 3, dtype=np.float64)
    np.savez(archive, x_train=stored, y_train=labels(10))
    train = opened(archive, RGB, layout="NHWC").train
    batch = only(train.read(np.arange(3)))
    assert batch.dtype == np.float32
    assert batch.flags.c_contiguous
    before = batch.copy()
    batch += 1
    np.testing.assert_array_equal(only(train.read(np.arange(3))), before)


def test_the_fingerprint_follows_content_seed_and_share(archive: Path) -> None:
    np.savez(archive, x_train=images(20, 4, 4), y_train=labels(20))
    first = opened(archive).fingerprint
    assert opened(archive).fingerprint == first
    assert opened(archive, seed=1).fingerprint != first
    assert opened(archive, validation_fraction=0.3).fingerprint != first
    assert opened(archive, scale=0.5).fingerprint == first
    np.savez(archive, x_train=images(20, 4, 4) + 1, y_train=labels(20))
    assert opened(archive).fingerprint != first


def test_no_path_names_the_ways_to_give_data() -> None:
    error = refusal(None)
    assert error.message == "no data given"
    for way in ("--data", "ltp.toml", "--config", "ltp-pipeline demo"):
        assert way in error.hint


def test_a_missing_path_is_named(archive: Path) -> None:
    assert str(archive) in refusal(archive).message


def test_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1,2,3")
    assert ".npz" in refusal(tmp_path / "data.csv").hint
    (tmp_path / "empty").mkdir()
    assert "class folders" in refusal(tmp_path / "empty").hint


def test_splits_of_different_shapes_are_refused(archive: Path) -> None:
    any_size = TensorInfo("image", "FLOAT", ("N", 1, "H", "W"))
    np.savez(
        archive, x_train=images(6, 4, 4), y_train=labels(6), x_val=images(6, 5, 5), y_val=labels(6)
    )
    assert "(5, 5)" in refusal(archive, any_size).message
