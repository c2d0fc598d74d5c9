"""What is written is UTF-8, or nothing is written."""

from pathlib import Path

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.files import write_json


def test_a_name_that_is_no_utf8_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a name that it should hold is no UTF-8"):
        write_json(tmp_path / "a.json", {"model": "\udcff.onnx"})
    assert not list(tmp_path.iterdir())
