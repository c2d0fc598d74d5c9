"""Tokens that a model has no row for."""

from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.data import vocabulary
from ltp_pipeline.data.open import open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings
from tests.support.archives import sequences
from tests.support.models import masked_tokens

INPUTS = [TensorInfo(name, "INT64", ("N", "T")) for name in ("ids", "ids_mask")]


def test_sequences_filled_up_with_what_is_no_token_are_refused(tmp_path: Path):
    np.savez(tmp_path / "data.npz", **sequences("ids"))
    rows = vocabulary.find_table_sizes(masked_tokens(vocabulary=12).graph)
    for pad, fits in ((11, True), (12, False)):
        data = open_data(DataSettings(path=tmp_path / "data.npz", padding_value=pad), INPUTS, 0)
        if fits:
            vocabulary.check_tokens(rows, data)
        else:
            with pytest.raises(
                InputError, match="filled up with 12, and the model's vocabulary has 12"
            ) as told:
                vocabulary.check_tokens(rows, data)
            assert '[data.inputs."ids"]' in told.value.hint
