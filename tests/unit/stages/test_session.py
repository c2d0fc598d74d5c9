"""A file in onnxruntime."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.stages.session import Beside, Session
from tests.support.models import masked_tokens


def test_samples_that_onnxruntime_cannot_take_are_bad_input(tmp_path: Path):
    onnx.save(masked_tokens(vocabulary=12), tmp_path / "model.onnx")
    session = Session(tmp_path / "model.onnx")
    ids = np.full((2, 3), 12)
    with pytest.raises(InputError, match=r"does not run .*model.onnx on these samples, 'ids' int64 2×3, .*Gather"):
        session.outputs({"ids": ids, "ids_mask": ids})
    with pytest.raises(InputError, match=r"'ids_mask' float32 2×3: .*tensor"):
        session.outputs({"ids": ids, "ids_mask": ids.astype(np.float32)})


@pytest.mark.parametrize(("apart", "found"), [(0.9e-5, True), (1.1e-4, False)])
def test_sparse_kernels_are_held_against_dense_ones_over_all_batches(apart: float, found: bool, tmp_path: Path):
    """By the largest value of all, and not of the batch in which they differ."""
    onnx.save(masked_tokens(), tmp_path / "model.onnx")
    beside = Beside(Session(tmp_path / "model.onnx"))
    for scale, more in ((10.0, 0.0), (1.0, 10 * apart)):
        beside.dense.outputs = lambda _, scale=scale: [np.array([[scale]])]
        beside.session.outputs = lambda _, scale=scale, more=more: [np.array([[scale + more]])]
        beside.outputs({})
    if found:
        assert beside.largest() == pytest.approx(apart)
    else:
        with pytest.raises(ExportFailed, match=r"outputs of the sparse kernels differ by 0\.00011 of the largest"):
            beside.largest()
