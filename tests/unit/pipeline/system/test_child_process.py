"""Functions that run in a child process."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ltp_pipeline.system.child_process import CallFailed, ChildCrashed, ChildProcess, call_once


def test_call_once_returns_the_result_of_the_function():
    assert call_once("operator:add", [1], [2]) == [1, 2]


def test_child_ignores_what_native_code_prints():
    code = """
import os
from ltp_pipeline.system import child_process
child_process._answer_call = lambda *_: os.write(1, b"*****\\n") and {"result": 1}
child_process._serve_calls(None)
"""
    process = subprocess.run(
        [sys.executable, "-c", code], input=b"[0, 0]\n[0, 0]\n", capture_output=True, check=True
    )
    assert [json.loads(line) for line in process.stdout.splitlines()] == 2 * [{"result": 1}]


def test_call_raises_the_first_line_of_an_error():
    with pytest.raises(CallFailed) as caught:
        call_once("operator:truediv", 1, 0)
    assert "division" in str(caught.value)


def test_child_answers_several_calls_and_remembers_modules():
    child = ChildProcess()
    try:
        assert child.call("os:getpid") == child.process.pid
        assert child.call("os:getpid") == child.process.pid
        assert child.is_usable
    finally:
        child.close()
    assert not child.is_usable


def test_child_of_another_process_is_not_usable():
    child = ChildProcess()
    child.owner = os.getpid() + 1
    try:
        assert not child.is_usable
    finally:
        child.close()


def test_call_kills_a_child_that_does_not_finish():
    start = time.monotonic()
    with pytest.raises(ChildCrashed) as caught:
        call_once("time:sleep", 60, seconds=0.5)
    assert "0.5 s" in str(caught.value)
    assert time.monotonic() - start < 30


def test_call_names_the_signal_of_a_crash():
    with pytest.raises(ChildCrashed) as caught:
        call_once("signal:raise_signal", int(signal.SIGSEGV))
    assert str(int(signal.SIGSEGV)) in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="memory limits need Linux")
def test_call_fails_beyond_its_memory_limit():
    size = 1 << 30
    assert len(call_once("builtins:str", "x" * 9, max_memory=size)) == 9
    with pytest.raises(CallFailed):
        call_once("builtins:bytearray", size, max_memory=size)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_call_raises_os_error_if_the_disk_is_full():
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is checked
        call_once("shutil:copyfile", "/dev/zero", "/dev/full")
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize("output", ["", "{", "Killed"])
def test_call_raises_if_the_answer_is_missing_or_cut_off(output: str):
    code = f"import sys; sys.stdin.readline(); print({output!r}, flush=True)"
    child = ChildProcess()
    child.close()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    child.process = subprocess.Popen([sys.executable, "-c", code], **pipes)
    with pytest.raises(ChildCrashed):
        child.call("os:getpid")
