"""Writing in one move, hashed on the way."""

import hashlib
from pathlib import Path

import pytest

from ltp_pipeline.files import write_hashed


def test_the_hash_is_told_before_the_file_is_in_place(tmp_path: Path):
    told: list[tuple[str, bool]] = []
    path = tmp_path / "file"
    digest = write_hashed(path, [b"one", memoryview(b"two")], lambda found: told.append((found, path.exists())))
    assert digest == hashlib.sha256(b"onetwo").hexdigest()
    assert told == [(digest, False)]
    assert path.read_bytes() == b"onetwo"


def test_where_that_fails_nothing_is_in_place_and_nothing_is_left(tmp_path: Path):
    def fail(_: str) -> None:
        raise ValueError("the manifest could not be written")

    with pytest.raises(ValueError, match="manifest"):
        write_hashed(tmp_path / "file", [b"one"], fail)
    assert not any(tmp_path.iterdir())
