"""onnxruntime in a process of its own."""

import json
import subprocess
import sys


def test_what_native_code_prints_is_no_answer():
    code = """
import os
from ltp_pipeline.stages.import_model import ort_subprocess
ort_subprocess._answer = lambda *_: os.write(1, b"*****\\n") and {"outputs": []}
ort_subprocess._serve()
"""
    done = subprocess.run([sys.executable, "-c", code], input=b"{}\n{}\n", capture_output=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == 2 * [{"outputs": []}]
