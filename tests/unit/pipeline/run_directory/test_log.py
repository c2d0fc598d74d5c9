"""The log: whatever stands in it, what can be read is."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.errors import InputError
from ltp_pipeline.run_directory.log import RunLog

LINE = {"stage": "learn", "key": "learn", "step": 3, "loss": 0.5, "thresholds": {"w": 0.1}}


def written(tmp_path: Path, content: bytes) -> RunLog:
    (tmp_path / "log.jsonl").write_bytes(content)
    return RunLog(tmp_path / "log.jsonl")


def test_read_repeated_steps_keeps_the_later(tmp_path: Path):
    log = RunLog(tmp_path / "log.jsonl")
    for loss in (0.5, 0.4):
        log.append({**LINE, "loss": loss})
    assert log.read() == ([{**LINE, "loss": 0.4}], 0)


def test_append_after_truncated_line_starts_a_new_line(tmp_path: Path):
    log = written(tmp_path, b'{"key": "learn", "st')
    log.append(LINE)
    log.append({**LINE, "step": 4})
    assert log.read() == ([LINE, {**LINE, "step": 4}], 1)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\x00",
        b"[1, 2]",
        b"3",
        b"[" * 100_000,
        b'{"step": "3"}',
        b'{"step": 3, "stage": ["learn"]}',
        b'{"step": 3, "loss": "low"}',
        b'{"step": 3, "thresholds": [1]}',
        b'{"step": 3, "thresholds": {"w": "x"}}',
        b'{"step": 3, "loss": 1' + b"0" * 400 + b"}",
        b'{"step": 3, "loss": 1' + b"0" * 5000 + b"}",
    ],
)
def test_read_invalid_line_is_counted_and_skipped(tmp_path: Path, line: bytes):
    log = written(tmp_path, line + b"\n" + json.dumps(LINE).encode() + b"\n")
    assert log.read() == ([LINE], 1)


@given(content=st.binary(max_size=200))
def test_read_any_bytes_succeeds(tmp_path_factory: pytest.TempPathFactory, content: bytes):
    lines, _ = written(tmp_path_factory.getbasetemp(), content).read()
    assert all(isinstance(line, dict) for line in lines)


def test_append_to_pipe_raises_without_waiting(tmp_path: Path):
    os.mkfifo(tmp_path / "log.jsonl")
    log = RunLog(tmp_path / "log.jsonl")
    assert log.read() == ([], 0)
    with pytest.raises(InputError, match=r"log\.jsonl"):
        log.append(LINE)
